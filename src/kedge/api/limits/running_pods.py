"""Compares LimitRanges with the pods of their namespace that already run."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.limits.bounds import NamespaceLimits
from kedge.api.limits.violations import LimitRangeViolation
from kedge.api.limits.workloads import outcome

_ENDED = ("Succeeded", "Failed")


class RunningPodViolations(NamedTuple):
    """A pod that would be refused if it were created now."""

    pod: str
    violations: Sequence[LimitRangeViolation]


def running_violations(
    bounds: NamespaceLimits, pods: Iterable[Pod]
) -> Iterator[RunningPodViolations]:
    """Yield the pods that would be refused, without those that have ended or are being deleted.

    A new pod would get defaults first, so they count here too.
    """
    for pod in pods:
        if pod.metadata.deletionTimestamp or pod.status.phase in _ENDED:
            continue
        if found := outcome(bounds, pod).violations:
            yield RunningPodViolations(pod.metadata.name, found)
