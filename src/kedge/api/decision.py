"""Decision: why a pod is on its node or on none, as the scheduler tells it to who asks.

Not a kind: it is kept by nobody but the scheduler that decided, and only for a while.
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


class Amounts(Model):
    """Some cpu and memory, as quantities."""

    cpu: str = "0"
    memory: str = "0"


class Expected(Model):
    """What the pod is taken for while nothing has been measured of it."""

    amounts: Amounts = Amounts()
    source: str = ""
    """Where that comes from: siblings, requests or default."""


class NodeUsage(Model):
    """What a node had to carry."""

    window: str = ""
    """Which statistic counted: of the node's minute, or of the days of its pods."""
    used: Amounts = Amounts()
    expected: Amounts = Amounts()
    """What new pods were expected to add to it."""
    allocatable: Amounts = Amounts()
    measured: bool = False
    """Whether the node was; else the figures are sums over its pods."""
    pods: int = 0
    measuredPods: int = 0


class Points(Model):
    """What one score gave a node."""

    name: str = ""
    weight: int = 0
    value: int = 0
    """Before its weight."""


class NodeVerdict(Model):
    """What became of one node."""

    name: str = ""
    verdict: str = ""
    """chosen, passed or refused."""
    filter: str = ""
    """Which filter refused, and why."""
    reasons: tuple[str, ...] = ()
    total: int | None = None
    """None if nodes did not have to be compared."""
    scores: tuple[Points, ...] = ()
    usage: NodeUsage | None = None


class Decision(Model):
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
    """What else must be known to read this."""
    usage: bool = False
    """Whether what is used entered the decision."""
    expected: Expected | None = None
    filters: tuple[str, ...] = ()
    """All of them, in the order in which nodes are asked."""
    same: tuple[str, ...] = ()
    """The scores that made no difference between nodes."""
    nodes: tuple[NodeVerdict, ...] = ()
    notAsked: int = 0
    """Nodes that nobody asked: enough had been found, or they could not be meant."""


class Decisions(Protocol):
    """Somebody who can say why a pod is where it is."""

    def why(self, namespace: str, name: str) -> Decision | None:
        """The latest decision about a pod, or what would be decided now; None for no such pod."""
        ...
