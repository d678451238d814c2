"""Proposal: computes the replicas that bring the usage of pods to the target."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from math import ceil
from typing import Final, Protocol

import msgspec

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.resources import is_sidecar, pod_level, pod_requests
from kedge.controllers.pod_state import condition, is_leaving, is_ready
from kedge.machinery.durations import parse_time

TOLERANCE: Final = 0.1
"""How far usage may be off its target before anything changes."""
WARMING_UP: Final = timedelta(minutes=5)
"""For so long after its start, a pod's use of cpu counts only while it is ready."""
FIRST_READINESS: Final = timedelta(seconds=30)
"""A pod that was last unready within this time of its start has never been ready."""
MOST_REPLICAS: Final = (1 << 31) - 1
NO_PODS: Final = "no pods returned by selector while calculating replica count"
NO_SAMPLES: Final = "did not receive metrics for targeted pods (pods might be unready)"
NO_MATCH: Final = "no metrics returned matched known pods"


class UnknownUsage(Exception):
    """The number of replicas cannot be computed; the message says why."""


class MetricSample(msgspec.Struct, frozen=True):
    """The usage of a resource by a pod or one of its containers, in thousandths of the unit."""

    value: int
    at: datetime
    window: timedelta


class Tolerance(msgspec.Struct, frozen=True):
    """The accepted distance of usage from its target."""

    below: float = TOLERANCE
    above: float = TOLERANCE

    def bears(self, ratio: float) -> bool:
        return 1.0 - self.below <= ratio <= 1.0 + self.above


class Proposal(msgspec.Struct, frozen=True):
    """The replicas that one metric proposes, and the measured usage."""

    replicas: int
    average: int | None = None
    """The average usage per pod, in thousandths."""
    utilization: int | None = None
    """The same in percent of what it requests."""
    value: int | None = None
    """The value of an object or of an external system, in thousandths."""


class UsageTarget(Protocol):
    """The target of a metric."""

    def measure(self, values: Mapping[str, int]) -> tuple[float, Proposal]:
        """How usage compares with the target; the proposal has no replicas yet."""
        ...

    def substitute(self, pod: str) -> int:
        """Return the usage to assume for a pod without metrics before a scale-down."""
        ...


class AverageUse(msgspec.Struct, frozen=True):
    """A target average per pod, in thousandths."""

    amount: int

    def measure(self, values: Mapping[str, int]) -> tuple[float, Proposal]:
        average = sum(values.values()) // len(values)
        return average / self.amount, Proposal(0, average)

    def substitute(self, pod: str) -> int:
        return self.amount


class Utilization(msgspec.Struct, frozen=True):
    """A target percentage of the pods' requests."""

    percent: int
    requests: Mapping[str, int]

    def measure(self, values: Mapping[str, int]) -> tuple[float, Proposal]:
        known = [name for name in values if name in self.requests]
        used = sum(values[name] for name in known)
        requested = sum(self.requests[name] for name in known)
        if not requested:
            raise UnknownUsage(NO_MATCH)
        percent = used * 100 // requested
        return percent / self.percent, Proposal(0, used // len(known), percent)

    def substitute(self, pod: str) -> int:
        return self.requests.get(pod, 0) * max(100, self.percent) // 100


class SampleGroups(msgspec.Struct):
    """Pods grouped by how far their samples count."""

    counted: int = 0
    unready: list[str] = msgspec.field(default_factory=list)
    missing: list[str] = msgspec.field(default_factory=list)
    ignored: list[str] = msgspec.field(default_factory=list)


def propose(
    current: int,
    target: UsageTarget,
    pods: Sequence[Pod],
    samples: Mapping[str, MetricSample],
    *,
    resource: str,
    tolerance: Tolerance,
    now: datetime,
) -> Proposal:
    """How many replicas one metric asks for, by upstream's rules."""
    if not pods:
        raise UnknownUsage(NO_PODS)
    groups = grouped(pods, samples, resource, now)
    dropped = {*groups.unready, *groups.ignored}
    values = {name: sample.value for name, sample in samples.items() if name not in dropped}
    if not values:
        raise UnknownUsage(NO_SAMPLES)
    ratio, measured = target.measure(values)
    starting = groups.unready if ratio > 1.0 else []
    if not starting and not groups.missing:
        wanted = current if tolerance.bears(ratio) else ceil(ratio * groups.counted)
    else:
        values.update(assumed(target, groups.missing, ratio))
        values.update(dict.fromkeys(starting, 0))
        wanted = cautious(current, ratio, target.measure(values)[0], len(values), tolerance)
    return Proposal(wanted, measured.average, measured.utilization)


def to_value(
    value: int, target: int, current: int, pods: Sequence[Pod], tolerance: Tolerance
) -> Proposal:
    """Return the replicas that bring a value to its target, if it falls as they grow."""
    ratio = value / target
    if tolerance.bears(ratio):
        return Proposal(current, value=value)
    if not pods:
        raise UnknownUsage(f"unable to calculate ready pods: {NO_PODS}")
    ready = sum(pod.status.phase == "Running" and is_ready(pod) for pod in pods)
    return Proposal(min(ceil(ratio * ready), MOST_REPLICAS), value=value)


def per_pod(value: int, target: int, observed: int, tolerance: Tolerance) -> Proposal:
    """Return the replicas whose share of a value is the target; `observed` are those there are."""
    if not observed:
        # Kubernetes divides by zero here: the ratio is infinite, and the average unknown.
        return Proposal(min(ceil(value / target), MOST_REPLICAS))
    is_near = tolerance.bears(value / (target * observed))
    wanted = observed if is_near else min(ceil(value / target), MOST_REPLICAS)
    return Proposal(wanted, average=ceil(value / observed))


def assumed(target: UsageTarget, missing: Iterable[str], ratio: float) -> dict[str, int]:
    """Return the assumed usage of pods without samples: the value that changes least."""
    if ratio < 1.0:
        return {name: target.substitute(name) for name in missing}
    return dict.fromkeys(missing, 0) if ratio > 1.0 else {}


def cautious(current: int, before: float, after: float, pods: int, tolerance: Tolerance) -> int:
    """The replicas for a ratio that rests on assumptions: they may soften it but not turn it."""
    turned = (before - 1.0) * (after - 1.0) < 0
    if turned or tolerance.bears(after):
        return current
    wanted = ceil(after * pods)
    return max(wanted, current) if after > 1.0 else min(wanted, current)


def grouped(
    pods: Iterable[Pod], samples: Mapping[str, MetricSample], resource: str, now: datetime
) -> SampleGroups:
    groups = SampleGroups()
    for pod in pods:
        name = pod.metadata.name
        if is_leaving(pod) or pod.status.phase == "Failed":
            groups.ignored.append(name)
        elif pod.status.phase == "Pending":
            groups.unready.append(name)
        elif name not in samples:
            groups.missing.append(name)
        elif resource == "cpu" and not is_settled(pod, samples[name], now):
            groups.unready.append(name)
        else:
            groups.counted += 1
    return groups


def is_settled(pod: Pod, sample: MetricSample, now: datetime) -> bool:
    """Whether what a pod uses of the cpu says anything: starting up often takes more."""
    ready, started = condition(pod, "Ready"), pod.status.startTime
    if ready is None or not started:
        return False
    since = parse_time(ready.lastTransitionTime) if ready.lastTransitionTime else now
    begun = parse_time(started)
    if begun + WARMING_UP > now:
        return ready.status != "False" and sample.at >= since + sample.window
    return ready.status != "False" or begun + FIRST_READINESS <= since


def requests_of(pods: Iterable[Pod], resource: str, container: str = "") -> dict[str, int]:
    """Return the request of each pod or container; raise UnknownUsage if one has no request."""
    return {pod.metadata.name: _request(pod, resource, container) for pod in pods}


def _request(pod: Pod, resource: str, container: str) -> int:
    name = pod.metadata.name
    level = pod.spec.resources
    if not container and level is not None and any(map(pod_level, level.requests)):
        amount = pod_requests(pod.spec).get(resource)
        if amount is None:
            raise UnknownUsage(f"missing pod-level request for {resource} in Pod {name}")
        return amount.milli()
    lasting = [*pod.spec.containers, *filter(is_sidecar, pod.spec.initContainers)]
    chosen = [each for each in lasting if container in ("", each.name)]
    if not chosen:
        raise UnknownUsage(f"container {container} not found in Pod {name}")
    total = 0
    for each in chosen:
        if resource not in each.resources.requests:
            raise UnknownUsage(
                f"missing request for {resource} in container {each.name} of Pod {name}"
            )
        total += each.resources.requests[resource].milli()
    return total
