"""Which node to remove: little requested, little used, and all its pods fit elsewhere."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from kedge.node_autoscaler.cluster_state import ClusterState, is_draining, is_ready
from kedge.node_autoscaler.evictable import obstacle
from kedge.scheduler.cycle import CycleState, Placement, decide
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.node_state import amounts

THRESHOLD: Final = 0.5
"""The share of a node's cpu and memory, requested and measured, below which it is not needed; the
default of cluster-autoscaler."""


class CalmPeriods(NamedTuple):
    """Since when each node has not been needed, in monotonic seconds."""

    since: Mapping[str, float] = {}

    def observe(self, unneeded: Collection[str], now: float) -> "CalmPeriods":
        """Return the periods after another look: a node that is needed begins anew."""
        return CalmPeriods({name: self.since.get(name, now) for name in unneeded})

    def over(self, now: float, seconds: float) -> list[str]:
        """Return the nodes that have not been needed for so long."""
        return [name for name, since in self.since.items() if now - since >= seconds]


def unneeded(state: ClusterState, candidates: Sequence[str]) -> dict[str, float]:
    """Return the candidates that could be removed, with their measured use."""
    found = {}
    for name in candidates:
        node = state.nodes.get(name)
        if node is None or is_draining(node) or not is_ready(node):
            continue
        if not reason_to_keep(state, name):
            found[name] = state.usage[name]
    return found


def reason_to_keep(state: ClusterState, name: str) -> str:
    """Return why a node is not removed; nothing if it could be."""
    if name not in state.usage:
        return "its usage was not measured"
    if state.usage[name] >= THRESHOLD:
        return f"its pods use {state.usage[name]:.0%}"
    if (share := requested(state, name)) >= THRESHOLD:
        return f"its pods request {share:.0%}"
    for pod in state.moving(name):
        if why := obstacle(pod, state.budgets):
            return f"pod {pod.metadata.namespace}/{pod.metadata.name}: {why}"
    return _homeless(state, name)


def requested(state: ClusterState, name: str) -> float:
    """Return the share of cpu or memory, whichever is greater, that the pods of a node request;
    pods that stay with their node do not count."""
    room = amounts(state.nodes[name].status.allocatable)
    demands = [PodDemand(pod) for pod in state.moving(name)]
    shares = [
        sum(each.requests.get(resource, 0) for each in demands) / room[resource]
        for resource in ("cpu", "memory")
        if room.get(resource)
    ]
    return max(shares, default=1.0)


def _homeless(state: ClusterState, name: str) -> str:
    """Return which pod of a node would fit nowhere else."""
    draining = {each for each, node in state.nodes.items() if is_draining(node)}
    lost = {each for each, node in state.nodes.items() if not is_ready(node)}
    snapshot, turn = state.snapshot({name} | draining | lost), CycleState()
    for pod in state.moving(name):
        # As the pod that replaces it: one with a node fits only there.
        demand = PodDemand(replace(pod, spec=replace(pod.spec, nodeName="")))
        decision = decide(demand, snapshot, turn)
        if not isinstance(decision, Placement):
            return f"pod {pod.metadata.namespace}/{pod.metadata.name} fits on no other node"
        snapshot.place(demand, decision.node)
    return ""


def least_used(due: Collection[str], used: Mapping[str, float]) -> str:
    """Return the node to remove first; of equal ones the last by name."""
    return min(sorted(due, reverse=True), key=lambda name: used.get(name, 0.0), default="")
