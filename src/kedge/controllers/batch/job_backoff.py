"""The delay before a job replaces failed pods."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, NamedTuple

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.status import ContainerStatus
from kedge.controllers.pod_state import condition
from kedge.machinery.durations import moved, parse_time

FIRST: Final = 10.0
"""Seconds after the first failure; twice as many after each further one."""
MOST: Final = 600.0
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


class JobBackoff(NamedTuple):
    """The failures of a job since one of its pods last succeeded."""

    failures: int = 0
    last: datetime = _LONG_AGO

    def after(self, succeeded: Iterable[Pod], failed: Iterable[Pod]) -> "JobBackoff":
        """With pods that have ended since: those that failed before a success are forgiven."""
        failures = sorted(map(ended_at, failed))
        success = max(map(ended_at, succeeded), default=None)
        if success is None:
            before, since = self, failures
        else:
            before, since = JobBackoff(), [moment for moment in failures if moment > success]
        if not since:
            return before
        return JobBackoff(before.failures + len(since), since[-1])

    def remaining(self, now: datetime) -> float:
        """Seconds for which no pod is to be made."""
        if not self.failures:
            return 0.0
        wait = min(FIRST * 2.0 ** min(self.failures - 1, 40), MOST)
        return max(0.0, wait - (now - self.last).total_seconds())


def ended_at(pod: Pod) -> datetime:
    """Return when a pod ended: by its containers, its conditions, or its deletion."""
    meta = pod.metadata
    if (moment := _containers_ended(pod)) is not None:
        return moment
    ready = condition(pod, "Ready")
    if ready is not None and ready.status == "False" and ready.lastTransitionTime:
        return parse_time(ready.lastTransitionTime)
    if meta.deletionTimestamp:
        return moved(parse_time(meta.deletionTimestamp), -(meta.deletionGracePeriodSeconds or 0))
    return parse_time(meta.creationTimestamp)


def _containers_ended(pod: Pod) -> datetime | None:
    """When the last container ended; None if one has not, or nothing is known of any."""
    sidecars = {each.name for each in pod.spec.initContainers if each.restartPolicy == "Always"}
    status = pod.status
    beside = [each for each in status.initContainerStatuses if each.name in sidecars]
    moments = [_ended(each) for each in (*status.containerStatuses, *beside)]
    if not moments or not all(moments):
        return None
    return max(map(parse_time, moments))


def _ended(status: ContainerStatus) -> str:
    ended = status.state.terminated
    return ended.finishedAt if ended is not None else ""
