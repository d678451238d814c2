"""DynamicResources as a score: prefer nodes where claims get their better alternatives."""

from collections.abc import Sequence

from kedge.api.resource_v1 import sizes
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.devices.device_search import ClaimChoice
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.scores.score import scaled
from kedge.scheduler.snapshot import Snapshot


def rate(demand: PodDemand, snapshot: Snapshot, nodes: Sequence[NodeState]) -> list[int] | None:
    if not demand.pod.spec.resourceClaims:
        return None
    return scaled([_points(demand, snapshot, node) for node in nodes])


def _points(demand: PodDemand, snapshot: Snapshot, node: NodeState) -> int:
    proposal = snapshot.devices.proposal(demand.uid, node.name)
    return sum(map(alternative_points, proposal.choices)) if proposal is not None else 0


def alternative_points(choice: ClaimChoice) -> int:
    """Return 8 for each request with its first alternative, 7 with its second, and so on."""
    return sum(sizes.ALTERNATIVES - index for index in choice.alternatives)
