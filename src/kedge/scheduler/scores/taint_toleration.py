"""TaintToleration as a score: prefer nodes with few untolerated PreferNoSchedule taints."""

from collections.abc import Sequence

from kedge.api.core_v1.pod.tolerations import tolerated
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.scores.score import BEST, scaled
from kedge.scheduler.snapshot import Snapshot


def rate(demand: PodDemand, snapshot: Snapshot, nodes: Sequence[NodeState]) -> list[int] | None:
    if not snapshot.soft_tainted:
        return None
    tolerations = demand.pod.spec.tolerations
    counts = [
        sum(not tolerated(tolerations, taint) for taint in node.soft_taints) for node in nodes
    ]
    worst = scaled(counts)
    return None if worst is None else [BEST - value for value in worst]
