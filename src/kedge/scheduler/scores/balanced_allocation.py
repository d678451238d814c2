"""NodeResourcesBalancedAllocation: prefer nodes with similar fractions of cpu and memory in use."""

from collections.abc import Sequence

from kedge.api.core_v1.resource_names import CPU, MEMORY
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.node_state import MEMO_LIMIT, NodeState
from kedge.scheduler.scores.score import BEST
from kedge.scheduler.snapshot import Snapshot

HALF = BEST // 2
_NOTHING = (0, 0)


def rate(demand: PodDemand, snapshot: Snapshot, nodes: Sequence[NodeState]) -> list[int] | None:
    cpu, memory = demand.cpu, demand.memory
    if not cpu and not memory:
        return None
    asked = (cpu, memory)
    found = []
    for node in nodes:
        value = node.balanced.get(asked)
        if value is None:
            value = gain(node, cpu, memory)
            if len(node.balanced) >= MEMO_LIMIT:
                node.balanced.clear()
            node.balanced[asked] = value
        found.append(value)
    return found


def gain(node: NodeState, cpu: int, memory: int) -> int:
    """How much more even the node would be with the pod: 75 if it makes no difference."""
    before = node.balanced.get(_NOTHING)
    if before is None:
        before = node.balanced[_NOTHING] = balance(node, 0, 0)
    return HALF + (HALF + balance(node, cpu, memory) - before) // 2


def balance(node: NodeState, cpu: int, memory: int) -> int:
    """100 if cpu and memory are used to the same share, 50 if one is full and the other empty."""
    all_cpu, all_memory = node.allocatable.get(CPU, 0), node.allocatable.get(MEMORY, 0)
    if not all_cpu or not all_memory:
        return BEST
    # Compared as whole numbers: a pod that names its node may request 1e900 of anything.
    cpu_share = min(node.requested.get(CPU, 0) + cpu, all_cpu) / all_cpu
    memory_share = min(node.requested.get(MEMORY, 0) + memory, all_memory) / all_memory
    return int((1 - abs(cpu_share - memory_share) / 2) * BEST)
