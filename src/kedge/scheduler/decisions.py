"""Decisions: the latest scheduling decisions and their inputs, kept for `kedge why`."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from msgspec.structs import replace

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.resource_names import CPU, MEMORY
from kedge.api.model import ObjectMeta
from kedge.api.scheduling_kedge_v1alpha1 import scheduling_decision as api
from kedge.client.informer import Key
from kedge.machinery.durations import format_time
from kedge.machinery.quantity import Format, Quantity
from kedge.scheduler.cycle import Decision, Placement, Ranking
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.filters.filters import FILTERS
from kedge.scheduler.load import CpuAndMemory, Load
from kedge.scheduler.scores.node_usage import carried
from kedge.scheduler.scores.score import Score
from kedge.scheduler.snapshot import Snapshot
from kedge.scheduler.usage import ExpectedUsage

KEPT: Final = 1_000
"""How many decisions are kept."""
ROWS: Final = 50_000
"""About how many nodes and reasons may be named in all of them together."""


class DecisionSubject(NamedTuple):
    """The pod that a decision is about. The pod itself is not kept: it may have megabytes, and
    decisions outlive their pods, so that one tenant could fill the memory of the server."""

    key: Key
    uid: str
    scheduler: str
    best_effort: bool


class DecisionRecord(NamedTuple):
    """One decision, and the usage figures that it was based on."""

    subject: DecisionSubject
    decision: Decision
    at: datetime
    expectation: ExpectedUsage | None
    loads: Sequence[Load]
    """The loads of the compared nodes, in their order."""

    @property
    def rows(self) -> int:
        ranking = _ranking(self.decision)
        reasons = sum(len(each.reasons) for each in self.decision.refusals.values())
        return reasons + (len(ranking.nodes) if ranking is not None else 1)


def record(
    demand: PodDemand, decision: Decision, snapshot: Snapshot, at: datetime
) -> DecisionRecord:
    """A decision that was made just now, before anything follows from it."""
    usage, ranking, scheduler = snapshot.usage, _ranking(decision), demand.pod.spec.schedulerName
    subject = DecisionSubject(demand.key, demand.uid, scheduler, demand.best_effort)
    if not usage:
        return DecisionRecord(subject, decision, at, None, ())
    loads = [usage.load(node) for node in ranking.nodes] if ranking is not None else []
    return DecisionRecord(subject, decision, at, usage.expectation(demand), loads)


class DecisionLog:
    """The latest decision about each pod; the oldest are dropped."""

    def __init__(self) -> None:
        self._records: OrderedDict[Key, DecisionRecord] = OrderedDict()
        self._rows = 0

    def add(self, record: DecisionRecord) -> None:
        old = self._records.pop(record.subject.key, None)
        self._rows += record.rows - (old.rows if old is not None else 0)
        self._records[record.subject.key] = record
        while len(self._records) > 1 and (len(self._records) > KEPT or self._rows > ROWS):
            self._rows -= self._records.popitem(last=False)[1].rows

    def get(self, key: Key) -> DecisionRecord | None:
        return self._records.get(key)

    def __iter__(self) -> Iterator[DecisionRecord]:
        return iter(self._records.values())

    def __len__(self) -> int:
        return len(self._records)


class DecidedPod(NamedTuple):
    """A kept decision with the pod as it is now. Fulfils the API's KeptDecision."""

    record: DecisionRecord
    pod: Pod | None
    """None if the pod has ended or is gone."""
    scores: Sequence[Score]

    @property
    def namespace(self) -> str:
        return self.record.subject.key.namespace

    @property
    def name(self) -> str:
        return self.record.subject.key.name

    def summary(self) -> api.SchedulingDecision:
        found = summary(self.record, self.pod)
        note = self._gone() or _elsewhere(found)
        return replace(found, decidedAt=format_time(self.record.at), note=note)

    def whole(self) -> api.SchedulingDecision:
        return with_nodes(self.summary(), self.record, self.scores)

    def _gone(self) -> str:
        return "" if self.pod is not None else "the pod has ended or is gone"


def _elsewhere(found: api.SchedulingDecision) -> str:
    if found.boundTo and found.boundTo != found.node:
        return "another scheduler has bound the pod"
    return ""


def summary(record: DecisionRecord, pod: Pod | None) -> api.SchedulingDecision:
    """Return a decision as the API shows it, without its nodes and when it was decided."""
    subject, decision = record.subject, record.decision
    at = format_time(record.at)
    return api.SchedulingDecision(
        metadata=_metadata(subject, pod, at),
        scheduler=subject.scheduler,
        evaluatedAt=at,
        node=decision.node if isinstance(decision, Placement) else "",
        boundTo=pod.spec.nodeName if pod is not None else "",
        message="" if isinstance(decision, Placement) else decision.message,
        usage=record.expectation is not None,
        expected=_expected(record.expectation),
    )


def _metadata(subject: DecisionSubject, pod: Pod | None, at: str) -> ObjectMeta:
    """Return the pod's name, labels and uid: a decision is about this pod and no later one."""
    return ObjectMeta(
        name=subject.key.name,
        namespace=subject.key.namespace,
        uid=subject.uid,
        creationTimestamp=at,
        labels=pod.metadata.labels if pod is not None else {},
    )


def with_nodes(
    found: api.SchedulingDecision, record: DecisionRecord, scores: Sequence[Score]
) -> api.SchedulingDecision:
    """Return the summary of a decision together with the results of all nodes."""
    decision, ranking = record.decision, _ranking(record.decision)
    compared = {each.name for each, _ in ranking.parts} if ranking is not None else set()
    nodes = (*_passed(record), *_refused(decision))
    return replace(
        found,
        filters=tuple(each.name for each in FILTERS),
        same=tuple(
            each.name for each in scores if ranking is not None and each.name not in compared
        ),
        nodes=nodes,
        notAsked=max(decision.nodes - len(nodes), 0),
    )


def _ranking(decision: Decision) -> Ranking | None:
    return decision.ranking if isinstance(decision, Placement) else None


def _passed(record: DecisionRecord) -> Iterator[api.NodeVerdict]:
    """The nodes that could take the pod, the best first."""
    decision, ranking = record.decision, _ranking(record.decision)
    if ranking is None:
        if isinstance(decision, Placement):
            yield api.NodeVerdict(name=decision.node, verdict=api.CHOSEN)
        return
    assert isinstance(decision, Placement)
    order = sorted(
        range(len(ranking.nodes)),
        key=lambda at: (ranking.nodes[at].name != decision.node, -ranking.totals[at]),
    )
    for at in order:
        node = ranking.nodes[at]
        yield api.NodeVerdict(
            name=node.name,
            verdict=api.CHOSEN if node.name == decision.node else api.PASSED,
            total=ranking.totals[at],
            scores=tuple(
                api.ScorePoints(name=score.name, weight=score.weight, value=values[at])
                for score, values in ranking.parts
            ),
            usage=_usage(record, at) if record.loads else None,
        )


def _refused(decision: Decision) -> Iterator[api.NodeVerdict]:
    for name in sorted(decision.refusals):
        yield api.NodeVerdict(
            name=name,
            verdict=api.REFUSED,
            filter=decision.refused_by.get(name, ""),
            reasons=decision.refusals[name].reasons,
        )


def _usage(record: DecisionRecord, at: int) -> api.NodeUsage:
    load, ranking = record.loads[at], _ranking(record.decision)
    assert ranking is not None
    allocatable = ranking.nodes[at].allocatable
    best_effort = record.subject.best_effort
    return api.NodeUsage(
        window=api.WINDOW,
        used=_amounts(_used(load) if best_effort else load.usual),
        expected=_amounts(load.expected) if best_effort else api.UsageAmounts(),
        allocatable=_amounts(CpuAndMemory(allocatable.get(CPU, 0), allocatable.get(MEMORY, 0))),
        measured=load.measured,
        pods=load.pods,
        measuredPods=load.known,
    )


def _used(load: Load) -> CpuAndMemory:
    """Return what counts for a best-effort pod without what new pods are expected to add."""
    cpu, memory = carried(load, best_effort=True)
    return CpuAndMemory(max(cpu - load.expected.cpu, 0), memory - load.expected.memory)


def _expected(expectation: ExpectedUsage | None) -> api.ExpectedAmounts | None:
    if expectation is None:
        return None
    return api.ExpectedAmounts(amounts=_amounts(expectation.amount), source=expectation.source)


def _amounts(amount: CpuAndMemory) -> api.UsageAmounts:
    memory = Quantity.from_value(amount.memory, Format.BINARY_SI)
    return api.UsageAmounts(cpu=str(Quantity.from_milli(amount.cpu)), memory=str(memory))
