"""SchedulingDecision: why a pod is on its node, or on no node.

Not a stored kind: the scheduler that decided keeps it in memory for a while.
"""

from typing import Final, Protocol

from kedge.api.model import Model

PATH: Final = "/kedge/scheduling/v1/decisions"
"""Below it, a namespace and a pod's name."""

CHOSEN: Final = "chosen"
PASSED: Final = "passed"
REFUSED: Final = "refused"

NOW: Final = "1m 95th"
USUAL: Final = "1d 95th"


class UsageAmounts(Model):
    """Quantities of cpu and memory."""

    cpu: str = "0"
    memory: str = "0"


class ExpectedAmounts(Model):
    """The usage that is assumed for the pod while it has not been measured."""

    amounts: UsageAmounts = UsageAmounts()
    source: str = ""
    """Where that comes from: siblings, requests or default."""


class NodeUsage(Model):
    """The load of a node at the decision."""

    window: str = ""
    """Which statistic counted: of the node's minute, or of the days of its pods."""
    used: UsageAmounts = UsageAmounts()
    expected: UsageAmounts = UsageAmounts()
    """The expected usage of new pods."""
    allocatable: UsageAmounts = UsageAmounts()
    measured: bool = False
    """Whether the node was; else the figures are sums over its pods."""
    pods: int = 0
    measuredPods: int = 0


class ScorePoints(Model):
    """The points of one score for a node."""

    name: str = ""
    weight: int = 0
    value: int = 0
    """Before its weight."""


class NodeVerdict(Model):
    """The result of one node."""

    name: str = ""
    verdict: str = ""
    """chosen, passed or refused."""
    filter: str = ""
    """Which filter refused, and why."""
    reasons: tuple[str, ...] = ()
    total: int | None = None
    """None if nodes did not have to be compared."""
    scores: tuple[ScorePoints, ...] = ()
    usage: NodeUsage | None = None


class SchedulingDecision(Model):
    """One attempt to place a pod."""

    namespace: str = ""
    pod: str = ""
    uid: str = ""
    scheduler: str = ""
    decidedAt: str = ""
    """Empty if it is not known to have been decided here: then this is what would be decided."""
    evaluatedAt: str = ""
    node: str = ""
    """Where the pod goes or would go; empty if no node will do."""
    boundTo: str = ""
    """Where it is."""
    message: str = ""
    """Why no node will do."""
    note: str = ""
    """A remark on how to read the decision."""
    usage: bool = False
    """Whether measured usage entered the decision."""
    expected: ExpectedAmounts | None = None
    filters: tuple[str, ...] = ()
    """All of them, in the order in which nodes are asked."""
    same: tuple[str, ...] = ()
    """The scores that made no difference between nodes."""
    nodes: tuple[NodeVerdict, ...] = ()
    notAsked: int = 0
    """Nodes that were not tried: enough had been found, or they could not fit."""


class DecisionSource(Protocol):
    """A scheduler that can explain its decisions."""

    def why(self, namespace: str, name: str) -> SchedulingDecision | None:
        """The latest decision about a pod, or what would be decided now; None for no such pod."""
        ...
