"""Receivers: apply the events of informers to the snapshot and wake pods in the queue."""

from collections.abc import Iterable, Iterator
from typing import Final

from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.pod.pod import Pod
from kedge.client.informer import Key
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.filters.filters import (
    INTER_POD_AFFINITY,
    POD_TOPOLOGY_SPREAD,
    VOLUME_RESTRICTIONS,
)
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.queue import SchedulingQueue
from kedge.scheduler.snapshot import Snapshot
from kedge.scheduler.usage import NodeReport, used_by_node
from kedge.scheduler.usage_reader import PodUsageReader

NEIGHBOURLY: Final = frozenset((INTER_POD_AFFINITY, POD_TOPOLOGY_SPREAD, VOLUME_RESTRICTIONS))
"""Filters for which a pod matters to nodes other than its own."""


class PodReceiver:
    """Follows all pods that have not ended."""

    def __init__(self, snapshot: Snapshot, queue: SchedulingQueue, scheduler_name: str) -> None:
        self._snapshot = snapshot
        self._queue = queue
        self._scheduler_name = scheduler_name
        self._known: dict[Key, Pod] = {}

    def get(self, key: Key) -> Pod | None:
        return self._known.get(key)

    def replace(self, objects: Iterable[Pod]) -> Iterator[None]:
        fresh = {_key(pod): pod for pod in objects}
        for key in self._known.keys() - fresh.keys():
            self.remove(self._known[key])
            yield
        for pod in sorted(fresh.values(), key=lambda pod: pod.metadata.creationTimestamp):
            self.put(pod)
            yield

    def put(self, obj: Pod) -> None:
        key = _key(obj)
        old = self._known.get(key)
        if old is not None and old.metadata.uid != obj.metadata.uid:
            self.remove(old)
            old = None
        self._known[key] = obj
        if obj.spec.nodeName:
            self._is_placed(obj, old)
        elif obj.spec.schedulerName == self._scheduler_name:
            self._waits(obj, old)

    def remove(self, obj: Pod) -> None:
        uid = obj.metadata.uid
        self._known.pop(_key(obj), None)
        self._queue.remove(uid)
        self._snapshot.condemned.discard(uid)
        self._renounce(PodDemand(obj))
        self._leaves(uid)
        self._snapshot.usage.remove_pod(uid)

    def _is_placed(self, pod: Pod, old: Pod | None) -> None:
        snapshot, demand, node = self._snapshot, PodDemand(pod), pod.spec.nodeName
        former = snapshot.placed(demand.uid)
        snapshot.nominate(demand, "")
        self._queue.remove(demand.uid)
        if former is not None and snapshot.home(demand.uid) != node:
            self._leaves(demand.uid)
            former = None
        snapshot.place(demand, node)
        if former is not None and _takes_less(demand, former):
            self._queue.stir_node(node)
        if old is None or not old.spec.nodeName or _looks_different(pod, old):
            self._queue.stir(NEIGHBOURLY)

    def _waits(self, pod: Pod, old: Pod | None) -> None:
        uid = pod.metadata.uid
        demand = PodDemand(pod)
        if demand.terminating:
            self._queue.remove(uid)
            self._renounce(demand)
            self._leaves(uid)
        elif pod.spec.schedulingGates:
            self._queue.remove(uid)
        elif self._snapshot.placed(uid) is not None:
            self._queue.renew(demand)
        else:
            self._nominate(demand, old)
            if uid in self._queue and old is not None and not _asks_differently(pod, old):
                self._queue.renew(demand)
            else:
                self._queue.put(demand)

    def _nominate(self, demand: PodDemand, old: Pod | None) -> None:
        """Take over a nomination that another client has changed; decisions made here are newer."""
        told = demand.pod.status.nominatedNodeName
        if told == (old.status.nominatedNodeName if old is not None else ""):
            told = self._snapshot.nomination(demand.uid)
        if told != self._snapshot.nomination(demand.uid):
            self._renounce(demand)
        self._snapshot.nominate(demand, told)

    def _renounce(self, demand: PodDemand) -> None:
        """A pod gives up the node that was being cleared for it."""
        node = self._snapshot.nomination(demand.uid)
        if node:
            self._snapshot.nominate(demand, "")
            self._queue.stir_node(node)

    def _leaves(self, uid: str) -> None:
        node = self._snapshot.home(uid)
        if node:
            self._snapshot.remove(uid)
            self._queue.stir_node(node)
            self._queue.stir(NEIGHBOURLY)


class NodeReceiver:
    """Follows all nodes."""

    def __init__(self, snapshot: Snapshot, queue: SchedulingQueue) -> None:
        self._snapshot = snapshot
        self._queue = queue

    def replace(self, objects: Iterable[Node]) -> None:
        fresh = {node.metadata.name: node for node in objects}
        for name in self._snapshot.nodes.keys() - fresh.keys():
            self._remove(name)
        for node in fresh.values():
            self.put(node)

    def put(self, obj: Node) -> None:
        state = self._snapshot.nodes.get(obj.metadata.name)
        before = _character(state) if state is not None else None
        self._snapshot.put_node(obj)
        after = _character(self._snapshot.nodes[obj.metadata.name])
        if before != after:
            self._queue.stir_node(obj.metadata.name)
        # Capacity is of no interest to filters that compare areas.
        if before is None or before[:3] != after[:3]:
            self._queue.stir(NEIGHBOURLY)

    def remove(self, obj: Node) -> None:
        self._remove(obj.metadata.name)

    def _remove(self, name: str) -> None:
        self._snapshot.remove_node(name)
        self._queue.stir(NEIGHBOURLY)


class NodeReportReceiver:
    """Follows the usage of nodes. It wakes no pod, because filters do not depend on usage."""

    def __init__(self, snapshot: Snapshot, rounds: PodUsageReader) -> None:
        """`rounds` gets the names of nodes that have reported, whose pods it then reads anew."""
        self._snapshot = snapshot
        self._rounds = rounds

    def replace(self, objects: Iterable[NodeReport]) -> None:
        fresh = {report.metadata.name: report for report in objects}
        for name in {*self._snapshot.usage.nodes(), *self._rounds.nodes()} - fresh.keys():
            self._forget(name)
        for report in fresh.values():
            self.put(report)

    def put(self, obj: NodeReport) -> None:
        name, used = obj.metadata.name, used_by_node(obj)
        if used is None:
            self._unmeasured(name)
        else:
            self._snapshot.measure_node(name, used)
        self._rounds.reported(name)

    def remove(self, obj: NodeReport) -> None:
        self._forget(obj.metadata.name)

    def _forget(self, name: str) -> None:
        self._rounds.forget(name)
        self._unmeasured(name)

    def _unmeasured(self, name: str) -> None:
        self._snapshot.usage.remove_node(name)
        self._snapshot.reconsider(name)


def _key(pod: Pod) -> Key:
    return Key(pod.metadata.namespace, pod.metadata.name)


def _takes_less(demand: PodDemand, former: PodDemand) -> bool:
    return any(amount > demand.requests.get(name, 0) for name, amount in former.requests.items())


def _looks_different(pod: Pod, old: Pod) -> bool:
    """To its neighbours, that is; a pod that is being deleted no longer counts for spreading."""
    new, before = pod.metadata, old.metadata
    return new.labels != before.labels or new.deletionTimestamp != before.deletionTimestamp


def _asks_differently(pod: Pod, old: Pod) -> bool:
    if pod.spec != old.spec or pod.metadata.labels != old.metadata.labels:
        return True
    return pod.status.resourceClaimStatuses != old.status.resourceClaimStatuses


def _character(state: NodeState) -> tuple[object, ...]:
    """All of a node that filters look at."""
    spec, features = state.node.spec, state.node.status.declaredFeatures
    return state.labels, spec.taints, spec.unschedulable, state.allocatable, features
