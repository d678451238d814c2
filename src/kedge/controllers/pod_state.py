"""Predicates of pods for controllers: readiness, availability, and the order of deletion."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.status import PodCondition
from kedge.api.model import Object
from kedge.machinery.durations import moved, parse_time

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
ENDED: Final = ("Succeeded", "Failed")
_PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}


def is_leaving(obj: Object) -> bool:
    """Whether an object is being deleted."""
    return bool(obj.metadata.deletionTimestamp)


def node_of(pod: Pod) -> str | None:
    """Return the node that a pod is on; None if it is on none. For an index of pods."""
    return pod.spec.nodeName or None


def is_active(pod: Pod) -> bool:
    """Whether a pod has neither ended nor is about to."""
    return pod.status.phase not in ENDED and not is_leaving(pod)


def condition(pod: Pod, type_: str) -> PodCondition | None:
    return next((each for each in pod.status.conditions if each.type == type_), None)


def is_ready(pod: Pod) -> bool:
    found = condition(pod, "Ready")
    return found is not None and found.status == "True"


def ready_since(pod: Pod) -> datetime | None:
    """Since when a pod is ready; None if it is not, or does not say since when."""
    found = condition(pod, "Ready")
    if found is None or found.status != "True" or not found.lastTransitionTime:
        return None
    return parse_time(found.lastTransitionTime)


def is_available(pod: Pod, min_ready_seconds: int, now: datetime) -> bool:
    """Whether a pod has been ready for long enough."""
    if not is_ready(pod):
        return False
    return not min_ready_seconds or available_in(pod, min_ready_seconds, now) == 0.0


def available_in(pod: Pod, min_ready_seconds: int, now: datetime) -> float | None:
    """Seconds until a ready pod will be available, 0 if it is; None if it is not ready."""
    since = ready_since(pod)
    if since is None:
        return None
    left = moved(since, min_ready_seconds) - now
    return max(left.total_seconds(), 0.0)


def restarts(pod: Pod) -> tuple[int, int]:
    """The restarts of the container that restarted most, and of the sidecar that did."""
    sidecars = {each.name for each in pod.spec.initContainers if each.restartPolicy == "Always"}
    status = pod.status
    usual = [each.restartCount for each in status.containerStatuses]
    beside = [each.restartCount for each in status.initContainerStatuses if each.name in sidecars]
    return max(usual, default=0), max(beside, default=0)


def deletion_cost(pod: Pod) -> int:
    try:
        return int(pod.metadata.annotations.get(DELETION_COST, ""))
    except ValueError:
        return 0


def expendable_first(pod: Pod, neighbours: Mapping[str, int], now: datetime) -> tuple[Any, ...]:
    """A sort key by which the pods that are missed least come first, as upstream orders them.

    `neighbours` counts, by node, the pods of the same owner: the fuller node gives first.
    """
    return (
        bool(pod.spec.nodeName),
        _PHASES.get(pod.status.phase, 0),
        is_ready(pod),
        deletion_cost(pod),
        -neighbours.get(pod.spec.nodeName, 0),
        _magnitude(ready_since(pod), now),
        *(-count for count in restarts(pod)),
        _magnitude(_created(pod), now),
        pod.metadata.uid,
    )


def _created(pod: Pod) -> datetime | None:
    created = pod.metadata.creationTimestamp
    return parse_time(created) if created else None


def _magnitude(since: datetime | None, now: datetime) -> int:
    """How long ago something was, in powers of two: of pods about equally old, chance decides."""
    if since is None:
        return -2
    nanoseconds = int((now - since).total_seconds() * 1e9)
    return nanoseconds.bit_length() - 1 if nanoseconds > 0 else -1
