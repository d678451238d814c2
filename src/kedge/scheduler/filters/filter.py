"""Filter: rejects nodes that cannot take a pod, with the reason."""

from collections.abc import Callable
from typing import NamedTuple

from kedge.scheduler.demand import PodDemand
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.snapshot import Snapshot


class NodeRejection(NamedTuple):
    """The reasons why a node, or the whole cluster, cannot take a pod."""

    reasons: tuple[str, ...]
    final: bool = False
    """Whether it stays so whatever other pods leave: preemption does not help."""
    is_error: bool = False
    """Whether it ends the attempt: something is wrong that is not the node's."""


Check = Callable[[NodeState], NodeRejection | None]


class NarrowedCheck(NamedTuple):
    """A check that only the named nodes can pass."""

    nodes: frozenset[str]
    check: Check


Prepared = Check | NarrowedCheck | NodeRejection | None
"""None: the filter does not apply to the pod. A NodeRejection: no node can take the pod."""


class Filter(NamedTuple):
    """A filter plugin, by its upstream name."""

    name: str
    prepare: Callable[[PodDemand, Snapshot], Prepared]
    """Inspects the pod once and returns the check that runs on each node."""
