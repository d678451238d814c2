"""Snapshot: the cluster state that a cycle reads, updated with every change."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import zip_longest
from typing import Final

import msgspec

from kedge.api.core_v1.node_types import Node
from kedge.client.informer import Cache
from kedge.machinery.selectors import LabelRequirements
from kedge.scheduler.demand import AffinityTerm, PodDemand
from kedge.scheduler.devices.device_state import DeviceState
from kedge.scheduler.load import CpuAndMemory
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.storage import Storage
from kedge.scheduler.usage import ClusterUsage, PodUsage

REGION: Final = "topology.kubernetes.io/region"
ZONE: Final = "topology.kubernetes.io/zone"

Labels = Mapping[str, str]
Counts = Mapping[str, int]


class NamespaceMeta(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] = {}


class PartialNamespace(msgspec.Struct, frozen=True):
    """A namespace, reduced to its labels."""

    metadata: NamespaceMeta = NamespaceMeta()


class LabelGroup:
    """The pods of one namespace with equal labels: a selector matches all of them or none."""

    __slots__ = ("labels", "living", "namespace", "nodes")

    def __init__(self, demand: PodDemand) -> None:
        self.namespace = demand.namespace
        self.labels = demand.labels
        self.nodes: dict[str, int] = {}
        """How many of them each node has."""
        self.living: dict[str, int] = {}
        """The same without those that are being deleted."""


class Snapshot:
    """All nodes with their pods, and indexes for affinity and topology spread."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeState] = {}
        self.storage = Storage()
        self.devices = DeviceState()
        self.usage = ClusterUsage()
        self.namespaces: Cache[PartialNamespace] = Cache()
        self.anti_affinity: dict[AffinityTerm, dict[str, int]] = {}
        """For each thing that placed pods must keep away from: in which areas, and how many do."""
        self.pull: dict[AffinityTerm, dict[str, int]] = {}
        """For each thing that placed pods like or dislike: in which areas, and how much."""
        self.hard_tainted: set[str] = set()
        self.soft_tainted: set[str] = set()
        self.unschedulable: set[str] = set()
        self.nominated: dict[str, dict[str, PodDemand]] = {}
        """Pods for which a node is being cleared, by node and uid."""
        self.condemned: set[str] = set()
        """Uids of the pods that this scheduler evicts, until they are gone."""
        self._order: list[NodeState] | None = None
        self._within: dict[frozenset[str], list[NodeState]] = {}
        """A cache of nodes by labels, cleared when labels of nodes change."""
        self._groups: dict[str, dict[frozenset[tuple[str, str]], LabelGroup]] = {}
        self._homes: dict[str, str] = {}
        """The node of each placed pod, by uid."""
        self._astray: dict[str, dict[str, PodDemand]] = {}
        """Pods on nodes that are not known, by node and uid."""
        self._nominations: dict[str, str] = {}

    # Nodes.

    @property
    def order(self) -> list[NodeState]:
        """All nodes, so ordered that any stretch of them is spread over the zones."""
        if self._order is None:
            self._order = list(_interleaved(self.nodes.values()))
        return self._order

    def within(self, topologies: frozenset[str]) -> list[NodeState]:
        """The nodes that lie in an area of every one of some topologies."""
        found = self._within.get(topologies)
        if found is None:
            found = [state for state in self.order if state.labels.keys() >= topologies]
            self._within[topologies] = found
        return found

    def put_node(self, node: Node) -> None:
        state = self.nodes.get(node.metadata.name)
        if state is None:
            state = self.nodes[node.metadata.name] = NodeState(node)
            self._forget_order()
            for demand in self._astray.pop(state.name, {}).values():
                self._add(state, demand)
        elif state.labels == node.metadata.labels:
            state.renew(node)
        else:
            pods = list(state.pods.values())
            for demand in pods:
                self._take(state, demand)
            state.renew(node)
            self._forget_order()
            for demand in pods:
                self._add(state, demand)
        _keep(self.hard_tainted, state.name, bool(state.hard_taints))
        _keep(self.soft_tainted, state.name, bool(state.soft_taints))
        _keep(self.unschedulable, state.name, state.unschedulable)

    def remove_node(self, name: str) -> None:
        state = self.nodes.get(name)
        if state is None:
            return
        pods = dict(state.pods)
        for demand in pods.values():
            self._take(state, demand)
        del self.nodes[name]
        self._forget_order()
        if pods:
            self._astray[name] = pods
        for names in (self.hard_tainted, self.soft_tainted, self.unschedulable):
            names.discard(name)

    def reconsider(self, name: str) -> None:
        """Something else is known of what a node has to carry."""
        if (state := self.nodes.get(name)) is not None:
            state.load = None

    def measure_node(self, name: str, used: CpuAndMemory) -> None:
        """A node was measured."""
        self.usage.put_node(name, used)
        if (state := self.nodes.get(name)) is not None and state.load is not None:
            state.load = state.load.at(used)

    def measure_pod(self, uid: str, measured: PodUsage) -> None:
        """A pod was measured."""
        demand, home = self.placed(uid), self.home(uid)
        before = self.usage.pod(uid)
        changed = self.usage.put_pod(uid, measured, demand.owner if demand is not None else "")
        if changed or before is None or self.usage.node(home) is None:
            self.reconsider(home)
        elif (state := self.nodes.get(home)) is not None and state.load is not None:
            change = measured.now.cpu - before.now.cpu
            state.load = state.load.with_more_pods_cpu(change)

    def _forget_order(self) -> None:
        self._order = None
        self._within.clear()

    # Pods.

    def place(self, demand: PodDemand, node: str) -> None:
        """A pod is on a node, or is as good as there."""
        self.remove(demand.uid)
        self._homes[demand.uid] = node
        if (state := self.nodes.get(node)) is not None:
            self._add(state, demand)
        else:
            self._astray.setdefault(node, {})[demand.uid] = demand

    def remove(self, uid: str) -> None:
        """A pod is on no node any more."""
        node = self._homes.pop(uid, None)
        if node is None:
            return
        if (state := self.nodes.get(node)) is not None:
            self._take(state, state.pods[uid])
            return
        strays = self._astray[node]
        del strays[uid]
        if not strays:
            del self._astray[node]

    def placed(self, uid: str) -> PodDemand | None:
        """A pod that is on some node."""
        node = self._homes.get(uid)
        if node is None:
            return None
        state = self.nodes.get(node)
        return (state.pods if state is not None else self._astray[node])[uid]

    def home(self, uid: str) -> str:
        """The node that a pod is on."""
        return self._homes.get(uid, "")

    @contextmanager
    def with_pods(self, state: NodeState, demands: Iterable[PodDemand]) -> Iterator[None]:
        """As if a node had further pods."""
        added = [demand for demand in demands if demand.uid not in state.pods]
        for demand in added:
            self._add(state, demand)
        try:
            yield
        finally:
            for demand in added:
                self._take(state, demand)

    @contextmanager
    def without_pods(
        self, state: NodeState, demands: Iterable[PodDemand]
    ) -> Iterator[Callable[[PodDemand, bool], None]]:
        """As if a node had fewer pods; the function given brings one back or takes it again."""
        gone: dict[str, PodDemand] = {}

        def turn(demand: PodDemand, back: bool) -> None:
            if back:
                del gone[demand.uid]
                self._add(state, demand)
            else:
                gone[demand.uid] = demand
                self._take(state, demand)

        for demand in demands:
            turn(demand, False)
        try:
            yield turn
        finally:
            for demand in list(gone.values()):
                turn(demand, True)

    # Nominations.

    def nominate(self, demand: PodDemand, node: str) -> None:
        """A node is being cleared for a pod; an empty name says that none is any more."""
        former = self._nominations.pop(demand.uid, "")
        if former:
            others = self.nominated[former]
            del others[demand.uid]
            if not others:
                del self.nominated[former]
        if node:
            self._nominations[demand.uid] = node
            self.nominated.setdefault(node, {})[demand.uid] = demand

    def nomination(self, uid: str) -> str:
        """The node that is being cleared for a pod."""
        return self._nominations.get(uid, "")

    # Neighbours.

    def namespace_labels(self, namespace: str) -> Labels:
        known = self.namespaces.get(namespace)
        return known.metadata.labels if known is not None else {}

    def living(self, namespace: str, selector: LabelRequirements) -> Counts:
        """How many pods of a namespace are selected on each node, those being deleted left out."""
        groups = self._groups.get(namespace, {}).values()
        return _summed([each.living for each in groups if selector.matches(each.labels)])

    def matching(self, terms: tuple[AffinityTerm, ...]) -> Counts:
        """How many pods on each node are meant by all of the terms."""
        return _summed([group.nodes for group in self._meant(terms)])

    def comparisons(self, demand: PodDemand) -> int:
        """Return the number of label comparisons that placing a pod takes."""
        return demand.terms * sum(map(len, self._groups.values())) if demand.terms else 0

    def _meant(self, terms: tuple[AffinityTerm, ...]) -> Iterator[LabelGroup]:
        for namespace, groups in self._groups.items():
            labels = self.namespace_labels(namespace)
            if not all(term.reaches(namespace, labels) for term in terms):
                continue
            for group in groups.values():
                if all(term.selector.matches(group.labels) for term in terms):
                    yield group

    def _add(self, state: NodeState, demand: PodDemand) -> None:
        state.add(demand)
        groups = self._groups.setdefault(demand.namespace, {})
        group = groups.get(demand.group)
        if group is None:
            group = groups[demand.group] = LabelGroup(demand)
        _raise(group.nodes, state.name, 1)
        if not demand.terminating:
            _raise(group.living, state.name, 1)
        self._index(state, demand, 1)

    def _take(self, state: NodeState, demand: PodDemand) -> None:
        state.remove(demand)
        groups = self._groups[demand.namespace]
        group = groups[demand.group]
        _raise(group.nodes, state.name, -1)
        if not demand.terminating:
            _raise(group.living, state.name, -1)
        if not group.nodes:
            del groups[demand.group]
            if not groups:
                del self._groups[demand.namespace]
        self._index(state, demand, -1)

    def _index(self, state: NodeState, demand: PodDemand, sign: int) -> None:
        for term in demand.anti_affinity:
            _weigh(self.anti_affinity, term, state, sign)
        for term, weight in demand.pull:
            _weigh(self.pull, term, state, sign * weight)


def _weigh(
    index: dict[AffinityTerm, dict[str, int]], term: AffinityTerm, state: NodeState, weight: int
) -> None:
    area = state.labels.get(term.topology)
    if area is None:
        return
    areas = index.setdefault(term, {})
    _raise(areas, area, weight)
    if not areas:
        del index[term]


def _raise(counts: dict[str, int], name: str, by: int) -> None:
    if count := counts.get(name, 0) + by:
        counts[name] = count
    else:
        counts.pop(name, None)


def _summed(parts: list[dict[str, int]]) -> Counts:
    if len(parts) == 1:
        return parts[0]
    total: dict[str, int] = {}
    for part in parts:
        for name, count in part.items():
            total[name] = total.get(name, 0) + count
    return total


def _keep(names: set[str], name: str, there: bool) -> None:
    if there:
        names.add(name)
    else:
        names.discard(name)


def _interleaved(states: Iterable[NodeState]) -> Iterator[NodeState]:
    """One node of each zone in turn."""
    zones: dict[tuple[str | None, str | None], list[NodeState]] = {}
    for state in states:
        zones.setdefault((state.labels.get(REGION), state.labels.get(ZONE)), []).append(state)
    for row in zip_longest(*zones.values()):
        yield from (state for state in row if state is not None)
