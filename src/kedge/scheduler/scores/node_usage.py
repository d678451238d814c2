"""NodeUsage: the more of a node is really left, the better; kedge's own, silent without metrics."""

from collections.abc import Sequence

from kedge.api.core_v1.resource_names import CPU, MEMORY
from kedge.scheduler.demand import Demand
from kedge.scheduler.load import Amount, Load
from kedge.scheduler.node_state import MEMO_LIMIT, NodeState
from kedge.scheduler.scores.score import BEST
from kedge.scheduler.snapshot import Snapshot


def rate(demand: Demand, snapshot: Snapshot, nodes: Sequence[NodeState]) -> list[int] | None:
    usage = snapshot.usage
    if not usage:
        return None
    best_effort, more = demand.best_effort, usage.expectation(demand).amount
    measured, found = False, []
    for node in nodes:
        load = node.load or usage.load(node)
        measured = measured or load.measured
        memo = load.left_now if best_effort else load.left_usually
        value = memo.get(more)
        if value is None:
            if len(memo) >= MEMO_LIMIT:
                memo.clear()
            value = memo[more] = left(node, carried(load, best_effort), more)
        found.append(value)
    return found if measured else None


def carried(load: Load, best_effort: bool) -> Amount:
    """What counts as used: for a pod that was promised nothing, what is used at the moment; for
    others, what their neighbours usually use, for these will want it again."""
    if best_effort:
        return Amount(load.now.cpu + load.expected.cpu, load.now.memory + load.expected.memory)
    return load.usual


def left(node: NodeState, used: Amount, more: Amount) -> int:
    """The share that would be left with the pod, of whichever is scarcer."""
    return min(
        _share(node.allocatable.get(CPU, 0), used.cpu + more.cpu),
        _share(node.allocatable.get(MEMORY, 0), used.memory + more.memory),
    )


def _share(whole: int, used: int) -> int:
    return max(whole - used, 0) * BEST // whole if whole else 0
