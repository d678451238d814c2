"""NodeAffinity as a score: sum the weights of the preferred terms that the node matches."""

from collections.abc import Sequence

from kedge.api.core_v1.node_selection import preferred_nodes
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.scores.score import scaled
from kedge.scheduler.snapshot import Snapshot


def rate(demand: PodDemand, snapshot: Snapshot, nodes: Sequence[NodeState]) -> list[int] | None:
    wishes = preferred_nodes(demand.pod.spec)
    if not wishes:
        return None
    return scaled(
        [sum(weight for weight, match in wishes if match(node.name, node.labels)) for node in nodes]
    )
