"""How many nodes to add: the pods that wait are placed on nodes that do not exist yet, with the
scheduler's own filters."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.resource_v1.pod_claims import consumer
from kedge.api.resource_v1.resource_claim import ResourceClaim
from kedge.api.resource_v1.resource_slice import ResourceSlice
from kedge.node_autoscaler.cluster_state import (
    ClusterState,
    daemons,
    is_draining,
    is_ready,
    template,
)
from kedge.node_autoscaler.node_devices import expected_drivers
from kedge.scheduler.cycle import CycleState, Placement, PreparedFilters, decide
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.filters.filters import DYNAMIC_RESOURCES
from kedge.scheduler.reservations import ClaimReservation, claim_reservations
from kedge.scheduler.scheduler import NAME
from kedge.scheduler.snapshot import Snapshot

MOST_EVALUATIONS: Final = 5_000
"""How many expressions are evaluated for devices in one look, at up to 3 ms each."""
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
    return next((node for node in _by_name(state.nodes) if _is_usable(node)), None)


def _is_usable(node: Node) -> bool:
    return is_ready(node) and not is_draining(node)


def _by_name(nodes: Mapping[str, Node]) -> Iterator[Node]:
    return (nodes[name] for name in sorted(nodes))


class _Simulation:
    """A snapshot with nodes that do not exist yet."""

    def __init__(self, state: ClusterState, model: Node, without: set[str]) -> None:
        self._model = model
        self._daemons = state.on(model.metadata.name)
        self._snapshot: Snapshot = state.snapshot(without)
        self._devices = state.devices
        usable = (name for name, node in state.nodes.items() if _is_usable(node))
        self._drivers = expected_drivers(state.devices, usable, state.pods, model.metadata.name)
        self._evaluations = MOST_EVALUATIONS
        self._turn = CycleState()
        self._last = ""

    def add(self, name: str) -> bool:
        """Add a new node with the pods of DaemonSets."""
        self._last = name
        self._snapshot.put_node(template(self._model, name))
        for each in self._slices(name):
            self._snapshot.devices.slices.put(each)
        for demand in daemons(self._daemons, name):
            self._snapshot.place(demand, name)
        return True

    def drop(self, name: str) -> None:
        for demand in daemons(self._daemons, name):
            self._snapshot.remove(demand.uid)
        self._snapshot.remove_node(name)
        for each in self._slices(name):
            self._snapshot.devices.slices.remove(each)

    def _slices(self, name: str) -> Iterator[ResourceSlice]:
        drivers = [driver for driver, doubt in self._drivers.items() if not doubt]
        return self._devices.modelled(self._model.metadata.name, name, drivers)

    def place(self, demand: PodDemand) -> str:
        """Place a pod; returns its node, or nothing."""
        self._evaluate_selectors(demand)
        decision = decide(demand, self._snapshot, self._turn)
        if not isinstance(decision, Placement):
            return ""
        node = self._snapshot.nodes[decision.node]
        for each in claim_reservations(demand, node, self._snapshot):
            self._snapshot.devices.claims.put(_reserved(each, demand))
        self._snapshot.place(demand, decision.node)
        return decision.node

    def refusal(self, demand: PodDemand) -> str:
        """Why the node that was added last does not take a pod."""
        node = self._snapshot.nodes[self._last]
        self._snapshot.devices.forget_proposals()
        refused = PreparedFilters(demand, self._snapshot).refuses(node)
        if refused is None:
            return "1 the pod has too many rules"
        reasons = [f"1 {each}" for each in refused[1].reasons]
        if refused[0] == DYNAMIC_RESOURCES:
            reasons += [doubt for doubt in self._drivers.values() if doubt]
        return ", ".join(reasons)

    def _evaluate_selectors(self, demand: PodDemand) -> None:
        """Evaluate the selectors of a pod for devices, so that the search has the results."""
        devices = self._snapshot.devices
        resources = [name for name, _ in demand.others]
        for long in devices.evaluate_selectors(demand.pod, resources):
            if self._evaluations <= 0:
                return
            self._evaluations -= 1
            if long is not None:
                devices.keep(long, long.result())


def _reserved(reservation: ClaimReservation, demand: PodDemand) -> ResourceClaim:
    """Return a claim as it is once the scheduler has written it."""
    claim = reservation.claim
    status = replace(
        claim.status,
        allocation=reservation.allocation or claim.status.allocation,
        reservedFor=[*claim.status.reservedFor, consumer(demand.pod)],
    )
    # Claims that are not created yet have the same name for all pods.
    name = f"{claim.metadata.name}{demand.uid}" if reservation.mappings else claim.metadata.name
    return replace(claim, metadata=replace(claim.metadata, name=name), status=status)
