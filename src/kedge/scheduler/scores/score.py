"""Score: ranks the feasible nodes of a pod."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from kedge.scheduler.demand import PodDemand
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.snapshot import Snapshot

BEST: Final = 100
"""The most that a node can score before weights."""


class Score(NamedTuple):
    """A score plugin, by its upstream name if it has one."""

    name: str
    weight: int
    rate: Callable[[PodDemand, Snapshot, Sequence[NodeState]], Sequence[int] | None]
    """A number from 0 to BEST for each node; None if it makes no difference between them."""


def scaled(values: Sequence[int]) -> list[int] | None:
    """Values from zero on, stretched so that the largest one is the best score."""
    most = max(values)
    return [BEST * value // most for value in values] if most else None
