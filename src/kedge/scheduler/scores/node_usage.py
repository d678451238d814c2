"""NodeUsage, kedge's own score: prefer nodes with low measured usage; zero without metrics."""

from collections.abc import Sequence
from typing import Final

from kedge.api.core_v1.resource_names import CPU, MEMORY
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.load import CpuAndMemory, Load
from kedge.scheduler.node_state import MEMO_LIMIT, NodeState
from kedge.scheduler.scores.score import BEST
from kedge.scheduler.snapshot import Snapshot

FULL: Final = 1_000
MUCH: Final = 100
"""A node that is fuller than the emptiest one by so many thousandths, or more, scores nothing."""
SCARCE: Final = 3
"""Memory counts as soon as no more than one part in so many is left."""


def rate(demand: PodDemand, snapshot: Snapshot, nodes: Sequence[NodeState]) -> list[int] | None:
    usage = snapshot.usage
    if not usage:
        return None
    best_effort, more = demand.best_effort, usage.expectation(demand).amount
    measured, found = False, []
    for node in nodes:
        load = node.load or usage.load(node)
        measured = measured or load.measured
        memo = load.with_now if best_effort else load.with_usual
        value = memo.get(more)
        if value is None:
            if len(memo) >= MEMO_LIMIT:
                memo.clear()
            value = memo[more] = fullness(node, carried(load, best_effort), more)
        found.append(value)
    return points(found) if measured else None


def points(fullnesses: Sequence[int]) -> list[int] | None:
    """The emptiest node is the best; the last tenth of a machine is stretched."""
    least = min(fullnesses)
    if least == max(fullnesses):
        return None
    most = least + MUCH
    return [(most - each) * BEST // MUCH if each < most else 0 for each in fullnesses]


def carried(load: Load, best_effort: bool) -> CpuAndMemory:
    """Return the usage that counts for a pod.

    For all pods it is the usual cpu usage of the neighbours: what they used in the last minute is
    mostly chance, and soon over. For a best-effort pod whatever else runs on the node counts too,
    and the memory at the moment. For others it is the usual memory, because the neighbours will
    need it again.
    """
    if best_effort:
        return CpuAndMemory(load.usual.cpu + load.other_cpu, load.now.memory + load.expected.memory)
    return load.usual


def fullness(node: NodeState, used: CpuAndMemory, more: CpuAndMemory) -> int:
    """How full a node would be with the pod, in thousandths.

    Cpu is shared, so that every bit less of it helps. Memory only helps when it is missing: it
    counts once it is scarce, and then the more.
    """
    cpu = _share(used.cpu + more.cpu, node.allocatable.get(CPU, 0))
    memory = _share(used.memory + more.memory, node.allocatable.get(MEMORY, 0))
    return max(cpu, FULL - SCARCE * (FULL - memory))


def _share(used: int, whole: int) -> int:
    return min(used * FULL // whole, FULL) if whole else FULL
