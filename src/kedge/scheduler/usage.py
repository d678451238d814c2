"""Usage: the measured usage of nodes and pods, and the expected usage of unmeasured pods.

Whatever the API lists no longer is forgotten here too, so that nothing stale counts.
"""

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

import msgspec

from kedge.machinery.quantity import Quantity
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.load import CpuAndMemory, Load
from kedge.scheduler.node_state import NodeState

SIBLINGS: Final = "siblings"
REQUESTS: Final = "requests"
DEFAULT: Final = "default"

CAUTION: Final = 2
"""A pod without a measurement counts as so many average ones.

Replicas that start at once and then use more than expected would otherwise all be on the one idle
node.
"""
NOTICEABLE: Final = 32
"""A change of usage is noticeable if it is more than one part in so many."""

SLIGHT_MILLICORES: Final = 4
"""A change of cpu up to this is not noticeable either: the mean of a small pod changes by more than
one part in 32 with each of its first reports."""


class ReportedAmounts(msgspec.Struct, frozen=True, gc=False):
    """Quantities of cpu and memory, as the metrics API writes them."""

    cpu: str = ""
    memory: str = ""


class ReportedWindow(msgspec.Struct, frozen=True, gc=False):
    """Statistics of one window of time."""

    starttime: str = ""
    """When it began, if it was not measured for its whole length."""
    mean: ReportedAmounts = ReportedAmounts()
    max: ReportedAmounts = ReportedAmounts()
    ninety_fifth: ReportedAmounts = msgspec.field(name="95th", default=ReportedAmounts())


class ReportedWindows(msgspec.Struct, frozen=True, gc=False):
    """The windows that the scheduler reads."""

    seconds: ReportedWindow = msgspec.field(name="10s", default=ReportedWindow())
    minute: ReportedWindow = msgspec.field(name="1m", default=ReportedWindow())
    hour: ReportedWindow = msgspec.field(name="1h", default=ReportedWindow())
    day: ReportedWindow = msgspec.field(name="1d", default=ReportedWindow())


class ReportMeta(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class ContainerReport(msgspec.Struct, frozen=True, gc=False):
    metrics: ReportedWindows = ReportedWindows()


class NodeReport(msgspec.Struct, frozen=True, gc=False):
    """A node of the metrics API."""

    metadata: ReportMeta = ReportMeta()
    machine: ReportedWindows = ReportedWindows()


class PodReport(msgspec.Struct, frozen=True, gc=False):
    """A pod of the metrics API."""

    metadata: ReportMeta = ReportMeta()
    containers: tuple[ContainerReport, ...] = ()
    total: ReportedWindows | None = None
    """Only of a pod with several containers."""


class PodUsage(msgspec.Struct, frozen=True, gc=False):
    """The measured usage of a pod."""

    now: CpuAndMemory
    """During the last minute."""
    usual: CpuAndMemory
    """The mean cpu of the last hour, or of as much of it as was measured, and the most memory of
    the last day.

    Means add up to the mean of the node. Percentiles do not: their sum counts a pod for more if it
    varies more, as if all pods had their peaks in the same moment."""
    minute: bool
    """Whether it has been measured for a minute already."""
    hour: bool
    """Whether it has been measured for an hour already."""


class ExpectedUsage(NamedTuple):
    """The usage that is assumed for a pod until it has been measured."""

    amount: CpuAndMemory
    source: str
    """Where that comes from: siblings, requests or default."""


class ClusterUsage:
    """The measured usage of nodes and pods; empty without a metrics API."""

    def __init__(self) -> None:
        self._nodes: dict[str, CpuAndMemory] = {}
        self._pods: dict[str, PodUsage] = {}
        """By uid."""
        self._shares: dict[str, tuple[str, CpuAndMemory]] = {}
        """By uid of a pod: its owner, and its share of the sum of its siblings."""
        self._siblings: dict[str, tuple[int, int, int]] = {}
        """For each owner the cpu and memory of those of its pods that are known, and how many."""
        self._cpu = 0
        """The cpu usage of all these pods."""

    def __bool__(self) -> bool:
        return bool(self._nodes)

    # Updates.

    def put_node(self, name: str, used: CpuAndMemory) -> None:
        self._nodes[name] = used

    def remove_node(self, name: str) -> None:
        self._nodes.pop(name, None)

    def put_pod(self, uid: str, measured: PodUsage, owner: str) -> bool:
        """Record the usage of a pod; return whether the load of its node changes.

        The usual usage of a pod is kept until it has changed noticeably, so that not every report
        of every pod makes its node's load be computed anew.
        """
        before = self._pods.get(uid)
        if before is not None and _alike(before, measured) and self._owner(uid) == owner:
            self._pods[uid] = PodUsage(measured.now, before.usual, minute=True, hour=measured.hour)
            return False
        self._pods[uid] = measured
        self._withdraw(uid)
        # The first minute of a pod says little about its siblings.
        if owner and measured.minute:
            self._shares[uid] = owner, measured.usual
            self._add(owner, measured.usual, 1)
        return True

    def remove_pod(self, uid: str) -> None:
        self._pods.pop(uid, None)
        self._withdraw(uid)

    def _owner(self, uid: str) -> str:
        share = self._shares.get(uid)
        return share[0] if share is not None else ""

    def _withdraw(self, uid: str) -> None:
        if (share := self._shares.pop(uid, None)) is not None:
            self._add(*share, -1)

    def _add(self, owner: str, amount: CpuAndMemory, sign: int) -> None:
        cpu, memory, count = self._siblings.get(owner, (0, 0, 0))
        count += sign
        self._cpu += sign * amount.cpu
        if count:
            self._siblings[owner] = cpu + sign * amount.cpu, memory + sign * amount.memory, count
        else:
            del self._siblings[owner]

    # Queries.

    def pod(self, uid: str) -> PodUsage | None:
        """Return the measured usage of a pod, or None."""
        return self._pods.get(uid)

    def node(self, name: str) -> CpuAndMemory | None:
        """Return the current measured usage of a node, or None."""
        return self._nodes.get(name)

    def nodes(self) -> list[str]:
        """Return the names of the measured nodes."""
        return [*self._nodes]

    def strangers(self, uids: Collection[str]) -> int:
        """How many of these pods were not measured."""
        return len(uids) - sum(map(self._pods.__contains__, uids))

    def expectation(self, demand: PodDemand) -> ExpectedUsage:
        """Return the expected usage of a pod: its siblings', else its requests, else a default."""
        if demand.owner in self._siblings:
            source = SIBLINGS
        else:
            source = DEFAULT if demand.best_effort else REQUESTS
        return ExpectedUsage(CpuAndMemory(*self._guess(demand)), source)

    def _guess(self, demand: PodDemand) -> tuple[int, int]:
        """Return the expected usage of an unmeasured pod."""
        cpu, memory = self._expected(demand)
        if demand.best_effort and self._shares and demand.owner not in self._siblings:
            cpu = max(cpu, CAUTION * self._cpu // len(self._shares))
        return cpu, memory

    def _expected(self, demand: PodDemand) -> tuple[int, int]:
        known = self._siblings.get(demand.owner)
        if known is not None:
            cpu, memory, count = known
            return cpu // count, memory // count
        return demand.assumed_cpu, demand.assumed_memory

    def load(self, state: NodeState) -> Load:
        """Return the load of a node."""
        found = state.load
        if found is None:
            found = state.load = self._load(state)
        return found

    def _load(self, state: NodeState) -> Load:
        machine = self._nodes.get(state.name)
        new_cpu = new_memory = usual_cpu = usual_memory = pods_cpu = 0
        found = list(map(self._pods.get, state.pods))
        for measured, demand in zip(found, state.pods.values(), strict=True):
            if measured is None:
                cpu, memory = self._guess(demand)
                new_cpu += cpu
                new_memory += memory
                usual_cpu += cpu
                usual_memory += memory
                continue
            now_cpu, now_memory = measured.now
            cpu, memory = measured.usual
            pods_cpu += now_cpu
            if not measured.hour:
                if measured.minute:
                    # Cpu is what it is from the first minute on, while memory still grows.
                    memory = max(memory, self._expected(demand)[1])
                else:
                    more_cpu, more_memory = self._guess(demand)
                    new_cpu += max(more_cpu - now_cpu, 0)
                    new_memory += max(more_memory - now_memory, 0)
                    cpu, memory = max(cpu, more_cpu), max(memory, more_memory)
            usual_cpu += cpu
            usual_memory += memory
        return Load(
            measured=machine is not None,
            now=machine if machine is not None else _together(found),
            expected=CpuAndMemory(new_cpu, new_memory),
            usual=CpuAndMemory(usual_cpu, usual_memory),
            pods_cpu=pods_cpu,
            pods=len(found),
            known=len(found) - found.count(None),
        )


def _alike(before: PodUsage, now: PodUsage) -> bool:
    """Whether a pod that has been measured for a while still usually uses about the same."""
    if not (before.minute and now.minute and before.hour == now.hour):
        return False
    cpu, memory = (abs(old - new) for old, new in zip(before.usual, now.usual, strict=True))
    if memory * NOTICEABLE > before.usual.memory:
        return False
    return cpu <= SLIGHT_MILLICORES or cpu * NOTICEABLE <= before.usual.cpu


def _together(measured: Iterable[PodUsage | None]) -> CpuAndMemory:
    """Return the total current usage of the measured pods."""
    known = [each.now for each in measured if each is not None]
    return CpuAndMemory(sum(each.cpu for each in known), sum(each.memory for each in known))


def used_by_node(report: NodeReport) -> CpuAndMemory | None:
    """The cpu that a minute hardly exceeded, and the most memory of the last seconds."""
    cpu = report.machine.minute.ninety_fifth.cpu
    memory = report.machine.seconds.max.memory or report.machine.minute.ninety_fifth.memory
    return CpuAndMemory(millicores(cpu), size(memory)) if cpu and memory else None


def used_by_pod(report: PodReport) -> PodUsage | None:
    """Return the usage in a pod's windows; None if they are incomplete."""
    windows = report.total
    if windows is None:
        if len(report.containers) != 1:
            return None
        windows = report.containers[0].metrics
    minute, day = windows.minute, windows.day
    now, usual = minute.ninety_fifth, windows.hour.mean
    if not (now.cpu and now.memory and usual.cpu and day.max.memory):
        return None
    return PodUsage(
        CpuAndMemory(millicores(now.cpu), size(now.memory)),
        CpuAndMemory(millicores(usual.cpu), size(day.max.memory)),
        minute=not minute.starttime,
        hour=not windows.hour.starttime,
    )


def millicores(text: str) -> int:
    """Cpu as the server writes it; most amounts are odd numbers of nanocores."""
    if text[-1] == "n":
        return -(-int(text[:-1]) // 1_000_000)
    return Quantity.parse(text).milli()


def size(text: str) -> int:
    """Memory as the server writes it; most amounts are odd numbers of kibibytes."""
    if text.endswith("Ki"):
        return int(text[:-2]) << 10
    return Quantity.parse(text).value()
