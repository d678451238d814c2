"""NodeName: a pod that names its node goes nowhere else."""

from kedge.scheduler.demand import Demand
from kedge.scheduler.filters.filter import Prepared, Refusal
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.snapshot import Snapshot

REFUSAL = Refusal(("node(s) didn't match the requested node name",), final=True)


def prepare(demand: Demand, snapshot: Snapshot) -> Prepared:
    wanted = demand.pod.spec.nodeName
    if not wanted:
        return None

    def check(node: NodeState) -> Refusal | None:
        return None if node.name == wanted else REFUSAL

    return check
