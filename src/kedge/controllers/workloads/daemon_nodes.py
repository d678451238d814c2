"""The nodes of a DaemonSet, and its pod for each of them."""

from typing import Final

from msgspec.structs import replace

from kedge.api.apps_v1.daemon_set import RESOURCE, TEMPLATE_GENERATION, DaemonSet
from kedge.api.core_v1.node_selection import NAME_FIELD, required_nodes, required_terms
from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.pod.affinity import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Toleration,
)
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.api.core_v1.pod.tolerations import untolerated
from kedge.controllers.pod_control import pod_of

HASH: Final = "controller-revision-hash"
GENERATION: Final = "pod-template-generation"
HARD: Final = ("NoSchedule", "NoExecute")


def _tolerated(key: str, effect: str) -> Toleration:
    return Toleration(key=f"node.kubernetes.io/{key}", operator="Exists", effect=effect)


TOLERATED: Final = (
    _tolerated("not-ready", "NoExecute"),
    _tolerated("unreachable", "NoExecute"),
    _tolerated("disk-pressure", "NoSchedule"),
    _tolerated("memory-pressure", "NoSchedule"),
    _tolerated("pid-pressure", "NoSchedule"),
    _tolerated("unschedulable", "NoSchedule"),
)
"""The tolerations that every daemon pod gets, as in Kubernetes."""
TOLERATED_ON_HOST_NETWORK: Final = _tolerated("network-unavailable", "NoSchedule")


def tolerating(spec: PodSpec) -> PodSpec:
    """A daemon's spec, with what every daemon tolerates in place of milder words of its own."""
    added = [*TOLERATED, *([TOLERATED_ON_HOST_NETWORK] if spec.hostNetwork else ())]
    taints = [_taint(each) for each in added]
    kept = [each for each in spec.tolerations if _taint(each) not in taints]
    return replace(spec, tolerations=[*kept, *added])


def _taint(toleration: Toleration) -> tuple[str, str, str, str]:
    """Return the identity of a toleration, without its duration."""
    return toleration.key, toleration.effect, toleration.operator, toleration.value


class Eligibility:
    """Decides which nodes a DaemonSet runs on; created once per set, used for many nodes."""

    def __init__(self, owner: DaemonSet) -> None:
        spec = owner.spec.template.spec
        self._only = spec.nodeName
        self._matches = required_nodes(spec)
        self._tolerations = tolerating(spec).tolerations

    def wants(self, node: Node) -> bool:
        """Whether a pod should be started there."""
        return self._fits(node) and self._puts_up_with(node, HARD)

    def keeps(self, node: Node) -> bool:
        """Whether a pod that runs there already may stay."""
        return self._fits(node) and self._puts_up_with(node, ("NoExecute",))

    def _fits(self, node: Node) -> bool:
        meta = node.metadata
        if self._only and self._only != meta.name:
            return False
        return self._matches is None or self._matches(meta.name, meta.labels)

    def _puts_up_with(self, node: Node, effects: tuple[str, ...]) -> bool:
        taints = [taint for taint in node.spec.taints if taint.effect in effects]
        return untolerated(self._tolerations, taints) is None


def daemon_pod(owner: DaemonSet, hash_: str, node: str) -> Pod:
    """The pod for one node, as it is posted: the scheduler can place it nowhere else."""
    pod = pod_of(RESOURCE, owner, owner.spec.template)
    labels = {**pod.metadata.labels, HASH: hash_}
    if generation := template_generation(owner):
        labels[GENERATION] = generation
    return replace(
        pod,
        metadata=replace(pod.metadata, labels=labels),
        spec=replace(tolerating(pod.spec), affinity=_bound_to(node, pod.spec.affinity)),
    )


def _bound_to(node: str, affinity: Affinity | None) -> Affinity:
    """The affinity with its required nodes replaced by one; the template's were met already."""
    name = NodeSelectorRequirement(key=NAME_FIELD, operator="In", values=[node])
    required = NodeSelector(nodeSelectorTerms=[NodeSelectorTerm(matchFields=[name])])
    affinity = affinity or Affinity()
    nodes = replace(
        affinity.nodeAffinity or NodeAffinity(),
        requiredDuringSchedulingIgnoredDuringExecution=required,
    )
    return replace(affinity, nodeAffinity=nodes)


def template_generation(owner: DaemonSet) -> str:
    """How often the template was changed, as the server counts; "" if it is no number."""
    written = owner.metadata.annotations.get(TEMPLATE_GENERATION, "")
    return written if written.isdecimal() else ""


def is_updated(owner: DaemonSet, hash_: str, pod: Pod) -> bool:
    """Whether a pod is of the present template."""
    labels = pod.metadata.labels
    if labels.get(HASH) == hash_:
        return True
    generation = template_generation(owner)
    return bool(generation) and labels.get(GENERATION) == generation


def node_of(pod: Pod) -> str:
    """The node that a pod is on, or is meant for; "" if it is meant for none in particular."""
    if pod.spec.nodeName:
        return pod.spec.nodeName
    for term in required_terms(pod.spec) or ():
        for each in term.matchFields:
            if each.key == NAME_FIELD and each.operator == "In":
                return each.values[0] if len(each.values) == 1 else ""
    return ""
