"""The next steps of a DaemonSet: nodes that need a pod, and pods to delete."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from kedge.api.apps_v1 import rolling
from kedge.api.apps_v1.daemon_set import DaemonSet, DaemonSetStatus
from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.pod.pod import Pod
from kedge.controllers.pod_state import ENDED, is_available, is_leaving, is_ready
from kedge.controllers.workloads.daemon_nodes import Eligibility, is_updated, node_of

Placed = Mapping[str, Sequence[Pod]]
"""The pods of a set, by the node that they are on or meant for."""


class DaemonSetSteps(msgspec.Struct):
    """The nodes that need a pod, and the pods to delete."""

    nodes: list[str] = msgspec.field(default_factory=list)
    """Where a pod is to be made."""
    unwanted: list[Pod] = msgspec.field(default_factory=list)
    ended: list[tuple[Pod, str]] = msgspec.field(default_factory=list)
    """Pods that have ended, to be deleted for others to follow, and their nodes."""


class DaemonSetView(msgspec.Struct, frozen=True):
    """A DaemonSet and the nodes of the cluster at one moment."""

    owner: DaemonSet
    hash: str
    nodes: Sequence[Node]
    now: datetime

    @property
    def eligibility(self) -> Eligibility:
        return Eligibility(self.owner)

    def is_new(self, pod: Pod) -> bool:
        return is_updated(self.owner, self.hash, pod)

    def is_available(self, pod: Pod) -> bool:
        return is_available(pod, self.owner.spec.minReadySeconds, self.now)


def placed(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """The pods by node, oldest first, without those that have ended and are on their way out."""
    found: dict[str, list[Pod]] = {}
    for pod in sorted(pods, key=_age):
        node = node_of(pod)
        if node and not (pod.status.phase in ENDED and is_leaving(pod)):
            found.setdefault(node, []).append(pod)
    return found


def _age(pod: Pod) -> tuple[bool, str, str]:
    meta = pod.metadata
    return not pod.spec.nodeName, meta.creationTimestamp, meta.name


# One pod on every node, no more.


def standing_needs(view: DaemonSetView, pods: Placed) -> DaemonSetSteps:
    """Return the steps that give each eligible node one pod, whatever its template."""
    needs = DaemonSetSteps()
    eligibility = view.eligibility
    for node in view.nodes:
        name = node.metadata.name
        there = pods.get(name, ())
        if eligibility.wants(node) and not there:
            needs.nodes.append(name)
        elif eligibility.keeps(node):
            _add_on_node(needs, view, name, there, wanted=eligibility.wants(node))
        else:
            needs.unwanted += [pod for pod in there if not is_leaving(pod)]
    known = {node.metadata.name for node in view.nodes}
    lost = [pod for name, there in pods.items() if name not in known for pod in there]
    # No other controller deletes a pod that is bound to a node that no longer exists.
    needs.unwanted += [pod for pod in lost if not pod.spec.nodeName and not is_leaving(pod)]
    return needs


def _add_on_node(
    needs: DaemonSetSteps, view: DaemonSetView, node: str, there: Sequence[Pod], *, wanted: bool
) -> None:
    staying = [pod for pod in there if not is_leaving(pod)]
    needs.ended += [(pod, node) for pod in staying if pod.status.phase in ENDED]
    running = [pod for pod in staying if pod.status.phase not in ENDED]
    if surge(view.owner, 1) == 0:
        needs.unwanted += running[1:]
    elif not running and wanted:
        needs.nodes.append(node)
    else:
        needs.unwanted += _surplus(view, running)


def _surplus(view: DaemonSetView, running: Sequence[Pod]) -> Iterator[Pod]:
    """With surge an old pod and a new one may be there, as long as the new is not available."""
    if len(running) < 2:
        return
    new = [pod for pod in running if view.is_new(pod)]
    old = [pod for pod in running if not view.is_new(pod)]
    yield from [*new[1:], *old[1:]]
    if new and old and (not is_ready(old[0]) or view.is_available(new[0])):
        yield old[0]


# A rolling update.


def rolling_needs(view: DaemonSetView, pods: Placed) -> DaemonSetSteps:
    """Return the pods of older templates that the rolling update may replace now."""
    eligibility = view.eligibility
    wanted = {node.metadata.name for node in view.nodes if eligibility.wants(node)}
    by_node = {**dict.fromkeys(sorted(wanted), ()), **pods}
    if most := surge(view.owner, len(wanted)):
        return _surging(view, by_node, wanted, most)
    return _replacing(view, by_node, max(unavailable(view.owner, len(wanted)), 1))


def surge(owner: DaemonSet, nodes: int) -> int:
    """On how many nodes there may be two pods."""
    pace = owner.spec.updateStrategy.rollingUpdate
    if owner.spec.updateStrategy.type != "RollingUpdate" or pace is None:
        return 0
    return rolling.count(pace.maxSurge, nodes, up=True)


def unavailable(owner: DaemonSet, nodes: int) -> int:
    """On how many nodes the pod may be missing."""
    pace = owner.spec.updateStrategy.rollingUpdate
    if owner.spec.updateStrategy.type != "RollingUpdate" or pace is None:
        return 0
    return rolling.count(pace.maxUnavailable, nodes, up=True)


class _NodePods(msgspec.Struct, frozen=True):
    """The pods of one node during an update, without terminating ones."""

    new: Sequence[Pod]
    old: Sequence[Pod]

    @property
    def is_crowded(self) -> bool:
        """Whether there is more than an update accounts for."""
        return len(self.new) > 1 or len(self.old) > 1


def _pair(view: DaemonSetView, there: Sequence[Pod]) -> _NodePods:
    staying = [pod for pod in there if not is_leaving(pod)]
    return _NodePods(
        [pod for pod in staying if view.is_new(pod)],
        [pod for pod in staying if not view.is_new(pod)],
    )


def _replacing(view: DaemonSetView, by_node: Placed, most: int) -> DaemonSetSteps:
    """Old pods that are no use go at once; of the others as many as may be missing."""
    missing = 0
    useless: list[Pod] = []
    candidates: list[Pod] = []
    for there in by_node.values():
        pair = _pair(view, there)
        if pair.is_crowded or len(pair.new) == len(pair.old):
            missing += 1
        elif pair.new:
            missing += not view.is_available(pair.new[0])
        elif view.is_available(pair.old[0]):
            candidates.append(pair.old[0])
        else:
            useless.append(pair.old[0])
            missing += 1
    return DaemonSetSteps(unwanted=[*useless, *candidates[: max(most - missing, 0)]])


def _surging(view: DaemonSetView, by_node: Placed, wanted: set[str], most: int) -> DaemonSetSteps:
    """A new pod comes beside the old one, which goes when the new one is available."""
    needs = DaemonSetSteps()
    surging = available = 0
    candidates: list[str] = []
    misplaced: list[Pod] = []
    for node, there in by_node.items():
        pair = _pair(view, there)
        if pair.is_crowded:
            surging += 1
            continue
        available += any(view.is_available(pod) for pod in (pair.old or pair.new))
        if not pair.old:
            continue
        (old,) = pair.old
        if pair.new:
            if view.is_available(pair.new[0]):
                needs.unwanted.append(old)
            else:
                surging += 1
        elif node in wanted:
            (candidates if view.is_available(old) else needs.nodes).append(node)
        else:
            (misplaced if view.is_available(old) else needs.unwanted).append(old)
    needs.nodes += candidates[: max(most - surging, 0)]
    # Where nodes changed, a pod goes only when another is available elsewhere in its place.
    needs.unwanted += misplaced[: max(available - len(wanted), 0)]
    return needs


# The status.


def counted(view: DaemonSetView, pods: Placed, collisions: int | None) -> DaemonSetStatus:
    """Return the status of a set; the conditions stay as they are."""
    eligibility = view.eligibility
    wanted = [node.metadata.name for node in view.nodes if eligibility.wants(node)]
    oldest = [pods[name][0] for name in wanted if pods.get(name)]
    others = {node.metadata.name for node in view.nodes}.difference(wanted)
    ready = [pod for pod in oldest if is_ready(pod)]
    available = sum(map(view.is_available, ready))
    return DaemonSetStatus(
        desiredNumberScheduled=len(wanted),
        currentNumberScheduled=len(oldest),
        numberMisscheduled=sum(bool(pods.get(name)) for name in others),
        numberReady=len(ready),
        updatedNumberScheduled=sum(map(view.is_new, oldest)),
        numberAvailable=available,
        numberUnavailable=len(wanted) - available,
        observedGeneration=view.owner.metadata.generation,
        collisionCount=collisions,
        conditions=view.owner.status.conditions,
    )
