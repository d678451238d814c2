"""PodDemand: the requirements of one pod on nodes and other pods, computed once."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from msgspec.structs import replace

from kedge.api.core_v1.pod.affinity import PodAffinityTerm, WeightedPodAffinityTerm
from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.resources import is_sidecar, pod_level, pod_requests
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.api.core_v1.resource_names import CPU, MEMORY
from kedge.api.label_selector import compiled
from kedge.api.quota.pods import as_granted
from kedge.client.informer import Key
from kedge.machinery.quantity import Quantity
from kedge.machinery.selectors import NOTHING, LabelRequirements

Labels = Mapping[str, str]

ASSUMED: Final = {CPU: Quantity.parse("100m"), MEMORY: Quantity.parse("200Mi")}
"""The assumed usage of a container without requests, when nodes are compared.

With it, pods without requests spread too.
"""

_NONE: Final = Quantity(0)

FEW_LABELS: Final = 16
"""So many labels are kept once for all pods that have the same. A tenant may write thousands."""
FEW_RESOURCES: Final = 8

MOST_RULES: Final = 200
"""How many affinity terms and topology spread constraints a pod may have.

Each is compared with each node and each set of labels in the cluster, on the event loop, in every
attempt to place the pod; terms of placed pods are compared with every pod that comes. Upstream
sets no limit; a pod of 1.5 MB holds ten thousand, and ties up a core for minutes."""

REQUIRED_WEIGHT: Final = 1
"""How much a neighbour's required affinity to a pod counts when nodes are compared."""


class AffinityTerm(NamedTuple):
    """A pod affinity term: the selected pods, and the topology domain around each of them."""

    topology: str
    selector: LabelRequirements
    namespaces: frozenset[str]
    namespace_selector: LabelRequirements

    def matches(self, namespace: str, labels: Labels, namespace_labels: Labels) -> bool:
        """Whether a pod is one of those meant."""
        return self.reaches(namespace, namespace_labels) and self.selector.matches(labels)

    def reaches(self, namespace: str, labels: Labels) -> bool:
        """Whether pods of a namespace can be meant."""
        return namespace in self.namespaces or self.namespace_selector.matches(labels)


class HostPort(NamedTuple):
    """A host port that a container requests."""

    address: str
    protocol: str
    number: int


@lru_cache(1024)
def _one_of_equal(labels: frozenset[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    """Return the first of equal sets: thousands of pods have the same labels."""
    return labels


@lru_cache(1024)
def _cached_requests(*amounts: tuple[str, int]) -> Mapping[str, int]:
    return dict(amounts)


class PodDemand:
    """One pod as the scheduler sees it."""

    __slots__ = (
        "affinity",
        "anti_affinity",
        "assumed_cpu",
        "assumed_memory",
        "best_effort",
        "cpu",
        "excess",
        "group",
        "key",
        "labels",
        "likings",
        "memory",
        "namespace",
        "others",
        "owner",
        "pod",
        "ports",
        "priority",
        "requests",
        "terminating",
        "uid",
    )

    def __init__(self, pod: Pod) -> None:
        meta, spec = pod.metadata, as_granted(pod, "requests")
        self.pod = pod
        self.uid = meta.uid
        self.namespace = meta.namespace
        self.key = Key(meta.namespace, meta.name)
        self.labels = meta.labels
        group = frozenset(meta.labels.items())
        self.group = _one_of_equal(group) if len(group) <= FEW_LABELS else group
        """The same for all pods with the same labels."""
        self.priority = spec.priority or 0
        self.terminating = bool(meta.deletionTimestamp)
        requests = pod_requests(spec)
        own = {name: n for name, each in requests.items() if (n := units(name, each))}
        self.requests = _cached_requests(*own.items()) if len(own) <= FEW_RESOURCES else own
        """The requests, in millicores or whole units: one mapping for all pods with the same."""
        self.cpu = self.requests.get(CPU, 0)
        self.memory = self.requests.get(MEMORY, 0)
        self.best_effort = not self.cpu and not self.memory
        self.owner = next((each.uid for each in meta.ownerReferences if each.controller), "")
        """The uid of the controller that it shares with its siblings."""
        self.others = tuple(
            (name, amount) for name, amount in self.requests.items() if name not in ASSUMED
        )
        assumed = _assumed(spec, requests)
        self.assumed_cpu = units(CPU, assumed.get(CPU, _NONE))
        self.assumed_memory = units(MEMORY, assumed.get(MEMORY, _NONE))
        self.ports = tuple(_ports(spec))
        self.affinity: tuple[AffinityTerm, ...] = ()
        self.anti_affinity: tuple[AffinityTerm, ...] = ()
        self.likings: tuple[tuple[AffinityTerm, int], ...] = ()
        """Preferred neighbours and their weight, below zero for those to keep away from."""
        rules = count_rules(spec)
        self.excess = "" if rules <= MOST_RULES else _too_many(rules)
        """Why the pod fits no node at all."""
        if spec.affinity is not None and not self.excess:
            self._read_affinity(spec)

    def _read_affinity(self, spec: PodSpec) -> None:
        assert spec.affinity is not None
        near, far = spec.affinity.podAffinity, spec.affinity.podAntiAffinity
        likings: list[tuple[AffinityTerm, int]] = []
        if near is not None:
            self.affinity = self._terms(near.requiredDuringSchedulingIgnoredDuringExecution)
            wishes = near.preferredDuringSchedulingIgnoredDuringExecution
            likings += self._wishes(wishes, 1)
        if far is not None:
            self.anti_affinity = self._terms(far.requiredDuringSchedulingIgnoredDuringExecution)
            wishes = far.preferredDuringSchedulingIgnoredDuringExecution
            likings += self._wishes(wishes, -1)
        self.likings = tuple(likings)

    def _terms(self, terms: Sequence[PodAffinityTerm]) -> tuple[AffinityTerm, ...]:
        return tuple(_term(term, self.namespace) for term in terms)

    def _wishes(
        self, wishes: Sequence[WeightedPodAffinityTerm], sign: int
    ) -> Iterator[tuple[AffinityTerm, int]]:
        for wish in wishes:
            yield _term(wish.podAffinityTerm, self.namespace), sign * wish.weight

    @property
    def terms(self) -> int:
        """The number of its pod affinity and anti-affinity terms."""
        return len(self.affinity) + len(self.anti_affinity) + len(self.likings)

    @property
    def pull(self) -> Iterator[tuple[AffinityTerm, int]]:
        """How strongly the pod, once placed, draws others to it or keeps them away."""
        for term in self.affinity:
            yield term, REQUIRED_WEIGHT
        yield from self.likings


def count_rules(spec: PodSpec) -> int:
    """Return the number of a pod's affinity terms and topology spread constraints."""
    count = len(spec.topologySpreadConstraints)
    affinity = spec.affinity
    if affinity is None:
        return count
    if (nodes := affinity.nodeAffinity) is not None:
        count += len(nodes.preferredDuringSchedulingIgnoredDuringExecution)
        if (required := nodes.requiredDuringSchedulingIgnoredDuringExecution) is not None:
            count += len(required.nodeSelectorTerms)
    for pods in (affinity.podAffinity, affinity.podAntiAffinity):
        if pods is not None:
            count += len(pods.requiredDuringSchedulingIgnoredDuringExecution)
            count += len(pods.preferredDuringSchedulingIgnoredDuringExecution)
    return count


def _too_many(rules: int) -> str:
    return (
        f"the pod has {rules} affinity terms and topology spread constraints, "
        f"more than the {MOST_RULES} that are compared"
    )


def units(resource: str, amount: Quantity) -> int:
    """An amount as whole numbers count it: cpu in thousandths, all else in units."""
    return amount.milli() if resource == CPU else amount.value()


def _term(term: PodAffinityTerm, own: str) -> AffinityTerm:
    named = term.namespaces or term.namespaceSelector is not None
    return AffinityTerm(
        term.topologyKey,
        compiled(term.labelSelector),
        frozenset(term.namespaces if named else (own,)),
        NOTHING if term.namespaceSelector is None else compiled(term.namespaceSelector),
    )


def _ports(spec: PodSpec) -> Iterator[HostPort]:
    lasting = [container for container in spec.initContainers if is_sidecar(container)]
    for container in (*lasting, *spec.containers):
        for port in container.ports:
            if port.hostPort > 0:
                yield HostPort(port.hostIP or "0.0.0.0", port.protocol or "TCP", port.hostPort)


def _assumed(spec: PodSpec, requests: Mapping[str, Quantity]) -> Mapping[str, Quantity]:
    """The requests if each container asked for some cpu and memory."""
    missing = ASSUMED
    own = spec.resources
    if own is not None and any(pod_level(name) for name in own.requests):
        missing = {name: amount for name, amount in ASSUMED.items() if name not in requests}
    everyone = (*spec.containers, *spec.initContainers)
    if all(each.resources.requests.keys() >= missing.keys() for each in everyone):
        return requests

    def asking(container: Container) -> Container:
        own = {**missing, **container.resources.requests}
        return replace(container, resources=replace(container.resources, requests=own))

    return pod_requests(
        replace(
            spec,
            containers=[asking(each) for each in spec.containers],
            initContainers=[asking(each) for each in spec.initContainers],
        )
    )
