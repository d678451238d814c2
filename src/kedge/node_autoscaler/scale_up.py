"""How many nodes to add: the pods that wait are placed on nodes that do not exist yet, with the
scheduler's own filters."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.pod.pod import Pod
from kedge.node_autoscaler.cluster_state import (
    ClusterState,
    daemons,
    is_draining,
    is_ready,
    template,
)
from kedge.scheduler.cycle import CycleState, Placement, PreparedFilters, decide
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.scheduler import NAME
from kedge.scheduler.snapshot import Snapshot

FULL: Final = "max node group size reached"
"""The reason of cluster-autoscaler if there may be no further node."""


class ScaleUp(NamedTuple):
    """The nodes to add, and for whom."""

    nodes: tuple[str, ...] = ()
    pods: tuple[Pod, ...] = ()
    """The pods that will run there."""
    refused: tuple[tuple[Pod, str], ...] = ()
    """Pods that would not fit on a new node either, and why."""


def pending(pods: Sequence[Pod]) -> list[Pod]:
    """Return the pods that the scheduler could not place, the most important first. A pod for
    which others are evicted has a place already."""
    found = [each for each in pods if _is_unschedulable(each)]
    return sorted(
        found, key=lambda pod: (-(pod.spec.priority or 0), pod.metadata.creationTimestamp)
    )


def _is_unschedulable(pod: Pod) -> bool:
    if pod.spec.nodeName or pod.metadata.deletionTimestamp or pod.status.nominatedNodeName:
        return False
    if (pod.spec.schedulerName or NAME) != NAME:
        return False
    return any(
        each.type == "PodScheduled" and each.status == "False" and each.reason == "Unschedulable"
        for each in pod.status.conditions
    )


def scale_up(state: ClusterState, starting: Sequence[str], spare: Sequence[str]) -> ScaleUp:
    """Decide which of the spare nodes to add. Nodes that are starting count as if they were
    there, so that a slow start does not add another node for the same pods."""
    waiting = pending(state.pods)
    model = _model(state)
    if not waiting or model is None:
        return ScaleUp()
    simulation = _Simulation(state, model, without=set(starting))
    for name in starting:
        simulation.add(name)
    left = list(spare)
    added: dict[str, list[Pod]] = {}
    refused = []
    for pod in waiting:
        demand = PodDemand(pod)
        home = simulation.place(demand)
        if not home and left and simulation.add(left[0]) and (home := simulation.place(demand)):
            added[left.pop(0)] = []
        elif not home:
            why = simulation.refusal(demand) if left else FULL
            refused.append((pod, why))
            if left:
                simulation.drop(left[0])
        if home in added:
            added[home].append(pod)
    pods = tuple(pod for each in added.values() for pod in each)
    return ScaleUp(tuple(added), pods, tuple(refused))


def _model(state: ClusterState) -> Node | None:
    """Return the node after which a new one is modelled."""
    usable = (node for node in _by_name(state.nodes) if is_ready(node) and not is_draining(node))
    return next(usable, None)


def _by_name(nodes: Mapping[str, Node]) -> Iterator[Node]:
    return (nodes[name] for name in sorted(nodes))


class _Simulation:
    """A snapshot with nodes that do not exist yet."""

    def __init__(self, state: ClusterState, model: Node, without: set[str]) -> None:
        self._model = model
        self._daemons = state.on(model.metadata.name)
        self._snapshot: Snapshot = state.snapshot(without)
        self._turn = CycleState()
        self._last = ""

    def add(self, name: str) -> bool:
        """Add a new node with the pods of DaemonSets."""
        self._last = name
        self._snapshot.put_node(template(self._model, name))
        for demand in daemons(self._daemons, name):
            self._snapshot.place(demand, name)
        return True

    def drop(self, name: str) -> None:
        for demand in daemons(self._daemons, name):
            self._snapshot.remove(demand.uid)
        self._snapshot.remove_node(name)

    def place(self, demand: PodDemand) -> str:
        """Place a pod; returns its node, or nothing."""
        decision = decide(demand, self._snapshot, self._turn)
        if not isinstance(decision, Placement):
            return ""
        self._snapshot.place(demand, decision.node)
        return decision.node

    def refusal(self, demand: PodDemand) -> str:
        """Why the node that was added last does not take a pod."""
        node = self._snapshot.nodes[self._last]
        refused = PreparedFilters(demand, self._snapshot).refuses(node)
        reasons = refused[1].reasons if refused else ("the pod has too many rules",)
        return ", ".join(f"1 {each}" for each in reasons)
