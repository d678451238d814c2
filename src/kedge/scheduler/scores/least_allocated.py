"""NodeResourcesFit as a score: prefer the nodes with the most free resources."""

from collections.abc import Sequence

from kedge.api.core_v1.resource_names import CPU, MEMORY
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.node_state import MEMO_LIMIT, NodeState
from kedge.scheduler.scores.score import BEST
from kedge.scheduler.snapshot import Snapshot


def rate(demand: PodDemand, snapshot: Snapshot, nodes: Sequence[NodeState]) -> list[int]:
    cpu, memory = demand.assumed_cpu, demand.assumed_memory
    asked = (cpu, memory)
    found = []
    for node in nodes:
        value = node.least.get(asked)
        if value is None:
            value = left(node, cpu, memory)
            if len(node.least) >= MEMO_LIMIT:
                node.least.clear()
            node.least[asked] = value
        found.append(value)
    return found


def left(node: NodeState, cpu: int, memory: int) -> int:
    """The share of cpu and memory that would be left with the pod, on average."""
    all_cpu, all_memory = node.allocatable.get(CPU, 0), node.allocatable.get(MEMORY, 0)
    cpu_left = max(all_cpu - node.assumed_cpu - cpu, 0) * BEST
    memory_left = max(all_memory - node.assumed_memory - memory, 0) * BEST
    if not all_cpu or not all_memory:
        return cpu_left // (all_cpu or 1) + memory_left // (all_memory or 1)
    return (cpu_left // all_cpu + memory_left // all_memory) // 2
