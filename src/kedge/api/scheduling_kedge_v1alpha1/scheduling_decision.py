"""SchedulingDecision: why a pod is on its node, or on no node.

The scheduler keeps its latest decisions in memory and answers for this kind; the store has none.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from kedge.api.model import Int32, Model, Object, Time
from kedge.api.presentation import Column, Presentation, age_column, name_column
from kedge.api.resource import ObjectSource, Resource

CHOSEN: Final = "chosen"
PASSED: Final = "passed"
REFUSED: Final = "refused"

WINDOW: Final = "1h mean"

SCHEDULED: Final = "Scheduled"
UNSCHEDULABLE: Final = "Unschedulable"


class UsageAmounts(Model):
    """Quantities of cpu and memory."""

    cpu: str = "0"
    """Cores."""
    memory: str = "0"
    """Bytes."""


class ExpectedAmounts(Model):
    """The usage that is assumed for the pod while it has not been measured."""

    amounts: UsageAmounts = UsageAmounts()
    """The assumed usage."""
    source: str = ""
    """Basis of the assumption: siblings, requests or default."""


class NodeUsage(Model):
    """The load of a node at the decision."""

    window: str = ""
    """The statistic of cpu that counted."""
    used: UsageAmounts = UsageAmounts()
    """The measured usage of the pods, and for a best-effort pod of all else on the node."""
    expected: UsageAmounts = UsageAmounts()
    """The expected usage of new pods."""
    allocatable: UsageAmounts = UsageAmounts()
    """The amounts that the node has for pods."""
    measured: bool = False
    """Whether the node itself was measured; if not, the figures are sums over its pods."""
    pods: Int32 = 0
    """Number of pods on the node."""
    measuredPods: Int32 = 0
    """Number of those with a measurement."""


class ScorePoints(Model):
    """The points of one score for a node."""

    name: str = ""
    """Name of the score."""
    weight: Int32 = 0
    """Factor of the points in the total."""
    value: Int32 = 0
    """The points, without the weight."""


class NodeVerdict(Model):
    """The result of one node."""

    __required__ = ("name", "verdict")

    name: str = ""
    """Name of the node."""
    verdict: str = ""
    """chosen, passed or refused."""
    filter: str = ""
    """The filter that refused the node."""
    reasons: Sequence[str] = ()
    """The reasons of that filter."""
    total: int | None = None
    """Sum of the weighted points; absent if nodes did not have to be compared."""
    scores: Sequence[ScorePoints] = ()
    """The points that differ between nodes."""
    usage: NodeUsage | None = None
    """The load of the node, if usage entered the decision."""


class SchedulingDecision(Object):
    """The latest attempt to place the pod of the same name."""

    __required__ = ("scheduler", "evaluatedAt")

    scheduler: str = ""
    """The scheduler that the pod names."""
    decidedAt: Time = ""
    """When the scheduler decided; absent if the object shows what it would decide now."""
    evaluatedAt: Time = ""
    """When the nodes were evaluated."""
    node: str = ""
    """The node that the pod goes to or would go to; absent if no node will do."""
    boundTo: str = ""
    """The node that the pod is on."""
    message: str = ""
    """Why no node will do."""
    note: str = ""
    """A remark on how to read the decision."""
    usage: bool = False
    """Whether measured usage entered the decision."""
    expected: ExpectedAmounts | None = None
    """The usage that was assumed for the pod."""
    filters: Sequence[str] = ()
    """All filters, in the order in which they check a node."""
    same: Sequence[str] = ()
    """The scores that made no difference between nodes."""
    nodes: Sequence[NodeVerdict] = ()
    """The result of each node: the chosen one, then the others by total, then the refused ones."""
    notAsked: Int32 = 0
    """Nodes that were not tried: enough had been found, or they could not fit."""


class KeptDecision(Protocol):
    """A decision in the memory of a scheduler."""

    @property
    def namespace(self) -> str: ...

    @property
    def name(self) -> str: ...

    def summary(self) -> SchedulingDecision:
        """The decision without its nodes, scores and filters, which take most of the time."""
        ...

    def whole(self) -> SchedulingDecision: ...


class DecisionSource(Protocol):
    """A scheduler that can explain its decisions."""

    def why(self, namespace: str, name: str) -> SchedulingDecision | None:
        """The latest decision about a pod, or what would be decided now; None for no such pod."""
        ...

    def kept(self) -> Sequence[KeptDecision]:
        """All decisions in memory, in any order."""
        ...


def verdict(decision: SchedulingDecision) -> str:
    """The outcome in one word."""
    return SCHEDULED if decision.node else UNSCHEDULABLE


RESOURCE: Resource[SchedulingDecision] = Resource(
    type=SchedulingDecision,
    group="scheduling.kedge",
    version="v1alpha1",
    plural="schedulingdecisions",
    verbs=("get", "list"),
    source=ObjectSource.SCHEDULER,
    presentation=Presentation(
        fields={"node": lambda decision: decision.node},
        columns=(
            name_column(),
            Column(
                name="Node",
                description="The node that the scheduler chose.",
                cell=lambda decision: decision.node or "<none>",
            ),
            Column(
                name="Verdict",
                description="Scheduled, or Unschedulable if no node will do.",
                cell=verdict,
            ),
            age_column(),
            Column(
                name="Message",
                description="Why no node will do, or a remark.",
                cell=lambda decision: decision.message or decision.note,
            ),
        ),
    ),
)
