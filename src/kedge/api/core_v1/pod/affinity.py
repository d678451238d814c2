"""Affinities, tolerations and topology spread constraints."""

from collections.abc import Sequence

from msgspec import field

from kedge.api.model import Int32, LabelSelector, Model


class NodeSelectorRequirement(Model):
    """One condition on a node's label or field."""

    __required__ = ("key", "operator")

    key: str = ""
    """The label or field."""
    operator: str = ""
    """In, NotIn, Exists, DoesNotExist, Gt or Lt."""
    values: Sequence[str] = ()
    """The values; one integer for Gt and Lt, nothing for Exists and DoesNotExist."""


class NodeSelectorTerm(Model):
    """Conditions that must all hold. One without conditions matches no node."""

    __atomic__ = True

    matchExpressions: Sequence[NodeSelectorRequirement] = ()
    """Conditions on labels."""
    matchFields: Sequence[NodeSelectorRequirement] = ()
    """Conditions on fields; only metadata.name is known."""


class NodeSelector(Model):
    """Alternatives; one of them must hold."""

    __required__ = ("nodeSelectorTerms",)
    __atomic__ = True

    nodeSelectorTerms: Sequence[NodeSelectorTerm] = ()
    """The alternatives."""


class PreferredSchedulingTerm(Model):
    """A wish and how much it counts."""

    __required__ = ("weight", "preference")

    weight: Int32 = field(default_factory=int)
    """How much it counts, 1 to 100."""
    preference: NodeSelectorTerm = field(default_factory=NodeSelectorTerm)
    """The nodes wished for."""


class NodeAffinity(Model):
    """Nodes that a pod needs or likes."""

    requiredDuringSchedulingIgnoredDuringExecution: NodeSelector | None = None
    """Nodes that the pod may be placed on."""
    preferredDuringSchedulingIgnoredDuringExecution: Sequence[PreferredSchedulingTerm] = ()
    """Nodes that the pod would rather be placed on."""


class PodAffinityTerm(Model):
    """Pods, and the area around each of them."""

    __required__ = ("topologyKey",)

    labelSelector: LabelSelector | None = None
    """Selects the pods; absent selects none."""
    namespaces: Sequence[str] = ()
    """Namespaces in which pods are selected; none here and no namespaceSelector means the pod's
    own."""
    topologyKey: str = ""
    """The node label whose equal values make an area."""
    namespaceSelector: LabelSelector | None = None
    """Selects further namespaces; empty selects all."""
    matchLabelKeys: Sequence[str] = ()
    """Labels of this pod whose values the selected pods must share."""
    mismatchLabelKeys: Sequence[str] = ()
    """Labels of this pod whose values the selected pods must not share."""


class WeightedPodAffinityTerm(Model):
    """A wish about other pods and how much it counts."""

    __required__ = ("weight", "podAffinityTerm")

    weight: Int32 = field(default_factory=int)
    """How much it counts, 1 to 100."""
    podAffinityTerm: PodAffinityTerm = field(default_factory=PodAffinityTerm)
    """The pods and the area around them."""


class PodAffinity(Model):
    """Pods that a pod needs or likes to have near."""

    requiredDuringSchedulingIgnoredDuringExecution: Sequence[PodAffinityTerm] = ()
    """Pods that must be near."""
    preferredDuringSchedulingIgnoredDuringExecution: Sequence[WeightedPodAffinityTerm] = ()
    """Pods that would better be near."""


class PodAntiAffinity(Model):
    """Pods that a pod must or would rather keep away from."""

    requiredDuringSchedulingIgnoredDuringExecution: Sequence[PodAffinityTerm] = ()
    """Pods that must not be near."""
    preferredDuringSchedulingIgnoredDuringExecution: Sequence[WeightedPodAffinityTerm] = ()
    """Pods that would better not be near."""


class Affinity(Model):
    """The required and preferred affinities to nodes and other pods."""

    nodeAffinity: NodeAffinity | None = None
    """About nodes."""
    podAffinity: PodAffinity | None = None
    """About pods to be near to."""
    podAntiAffinity: PodAntiAffinity | None = None
    """About pods to keep away from."""


class Toleration(Model):
    """Taints that do not keep a pod from a node."""

    key: str = ""
    """The taint's key; empty with Exists means every taint."""
    operator: str = ""
    """How the value is compared: Exists, Equal, Lt or Gt. Default Equal."""
    value: str = ""
    """The taint's value, for Equal, Lt and Gt."""
    effect: str = ""
    """The taint's effect: NoSchedule, PreferNoSchedule or NoExecute; empty means all."""
    tolerationSeconds: int | None = None
    """How long a NoExecute taint is tolerated; absent means for ever."""


class TopologySpreadConstraint(Model):
    """How evenly matching pods are to be spread over areas."""

    __required__ = ("maxSkew", "topologyKey", "whenUnsatisfiable")

    maxSkew: Int32 = 0
    """Greatest difference allowed between the number of pods in two areas."""
    topologyKey: str = ""
    """The node label whose equal values make an area."""
    whenUnsatisfiable: str = ""
    """The action if the constraint cannot be met: DoNotSchedule or ScheduleAnyway."""
    labelSelector: LabelSelector | None = None
    """Selects the pods that are counted."""
    minDomains: Int32 | None = None
    """Fewer areas than this count as if an empty one existed. Only with DoNotSchedule."""
    nodeAffinityPolicy: str | None = None
    """Whether nodes ruled out by the pod's affinity are left out: Honor or Ignore."""
    nodeTaintsPolicy: str | None = None
    """Whether nodes with untolerated taints are left out: Honor or Ignore."""
    matchLabelKeys: Sequence[str] = ()
    """Labels of this pod whose values the counted pods must share."""
