"""Filter: says which nodes cannot take a pod, and why."""

from collections.abc import Callable
from typing import NamedTuple

from kedge.scheduler.demand import PodDemand
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.snapshot import Snapshot


class NodeRejection(NamedTuple):
    """Why a node, or the whole cluster, cannot take a pod."""

    reasons: tuple[str, ...]
    final: bool = False
    """Whether it stays so whatever other pods leave: preemption does not help."""


Check = Callable[[NodeState], NodeRejection | None]


class NarrowedCheck(NamedTuple):
    """A check of which it is known that few nodes can pass."""

    nodes: frozenset[str]
    check: Check


Prepared = Check | NarrowedCheck | NodeRejection | None
"""None: the filter has nothing to say about the pod. A Refusal: no node will ever do."""


class Filter(NamedTuple):
    """One of them, by upstream's name."""

    name: str
    prepare: Callable[[PodDemand, Snapshot], Prepared]
    """Looks at the pod once; what it returns is asked about each node."""
