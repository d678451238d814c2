"""SlowSubject: a container, or a pod with limits of its own, with the numbers that explain it."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from kedge.api.core_v1.pod.container import ResourceRequirements
from kedge.api.core_v1.pod.pod import Pod as CorePod
from kedge.api.core_v1.pod.resources import is_sidecar
from kedge.api.core_v1.pod.status import ContainerStatus
from kedge.api.metrics_v1alpha1.pod import Pod, windows_of
from kedge.api.metrics_v1alpha1.windows import Metrics, Windows
from kedge.api.model import ResourceList
from kedge.machinery.durations import parse_time
from kedge.machinery.quantity import Quantity
from kedge.metrics.windows import WINDOWS

RECENT: Final = ("1m", "1h")
"""The windows whose means tell that something is slow now, or was during the last hour."""
_NANOS: Final = 1_000_000_000
_OOM_KILLED: Final = "OOMKilled"


class SlowSubject(NamedTuple):
    """One container or pod to judge."""

    name: str
    """Of the container; empty for the whole pod."""
    windows: Windows
    resources: ResourceRequirements
    was_oom_killed: bool = False
    """Whether its present or its former run ended so."""

    @property
    def title(self) -> str:
        return f"container {self.name}" if self.name else "the pod"

    def mean(self, window: str, resource: str) -> float | None:
        """The mean of a window; None if it is not known."""
        return number(self.windows.get(window, Metrics()).mean, resource)

    def most(self, window: str, resource: str) -> float | None:
        """The maximum of a window; None if it is not known."""
        return number(self.windows.get(window, Metrics()).max, resource)

    def worst(self, resource: str) -> float:
        """The greatest of the recent means; 0 if none is known."""
        return max(self.mean(window, resource) or 0.0 for window in RECENT)

    def limit(self, resource: str) -> float | None:
        return number(self.resources.limits, resource)

    def request(self, resource: str) -> float | None:
        return number(self.resources.requests, resource)

    @property
    def kills(self) -> int:
        """Processes of the last day that were killed because memory ran out."""
        day = self.windows.get("1d")
        if day is None:
            return 0
        rate = number(day.mean, "oom-kills") or 0.0
        return max(1, round(rate * seconds(day, "1d"))) if rate else 0


def number(amounts: ResourceList, resource: str) -> float | None:
    """Return an amount as a number; None if it is missing."""
    found: Quantity | None = amounts.get(resource)
    return None if found is None else found.nanos / _NANOS


def seconds(window: Metrics, length: str) -> float:
    """Return how much time a window covers."""
    if not window.starttime:
        return WINDOWS[length]
    return (parse_time(window.endtime) - parse_time(window.starttime)).total_seconds()


def subjects(pod: CorePod, measured: Pod) -> Iterator[SlowSubject]:
    """Return the containers that stay and are measured, and the pod if it has its own limits."""
    declared = [*pod.spec.containers, *filter(is_sidecar, pod.spec.initContainers)]
    by_name = {each.name: each.resources for each in declared}
    states = [*pod.status.containerStatuses, *pod.status.initContainerStatuses]
    killed = {each.name for each in states if _was_oom_killed(each)}
    for each in measured.containers:
        name = each.metadata.name
        if name in by_name:
            yield SlowSubject(name, each.metrics, by_name[name], name in killed)
    own = pod.spec.resources
    if own is not None and (own.limits or own.requests):
        yield SlowSubject("", windows_of(measured), own)


def _was_oom_killed(status: ContainerStatus) -> bool:
    ends = (status.state.terminated, status.lastState.terminated)
    return any(end is not None and end.reason == _OOM_KILLED for end in ends)
