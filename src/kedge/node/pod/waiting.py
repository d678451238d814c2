"""Why a container waits: failed steps, and the back-off that its status shows."""

import msgspec

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.pod import Pod
from kedge.machinery.durations import SECOND, format_duration
from kedge.node.pod.backoff import BackoffDelay

PULL_ERROR_SECONDS = 5.0
"""Seconds for which a failed pull shows its own reason, before it shows ImagePullBackOff."""

POD_STEP = ""
"""Key of the failures of steps that concern the whole pod: sandbox, cgroup, volumes."""
RESIZE_STEP = "/resize"
"""Key of a failed resize; no container can have this name."""


class WaitingReason(msgspec.Struct, frozen=True):
    """The waiting state of a container that does not run."""

    reason: str
    message: str = ""


class StepFailure(msgspec.Struct, frozen=True):
    """A step that failed and is retried after a delay."""

    reason: str
    message: str
    at: float
    delay: BackoffDelay
    is_pull: bool = False
    image: str = ""

    @property
    def until(self) -> float:
        """When the step is retried, in seconds since the epoch."""
        return self.at + self.delay.seconds

    def shown(self, now: float) -> WaitingReason:
        """Return what the container's status shows."""
        if self.is_pull and now >= self.at + PULL_ERROR_SECONDS:
            message = f'Back-off pulling image "{self.image}": {self.reason}: {self.message}'
            return WaitingReason("ImagePullBackOff", message)
        return WaitingReason(self.reason, self.message)

    def next_change(self, now: float) -> float:
        """Return when the shown reason changes or the step is retried, whichever is first."""
        shown_until = self.at + PULL_ERROR_SECONDS
        return shown_until if self.is_pull and now < shown_until else self.until


def crash_loop(pod: Pod, container: Container, delay: BackoffDelay) -> WaitingReason:
    """Return the CrashLoopBackOff of a container."""
    text = format_duration(int(delay.seconds * SECOND))
    message = f"back-off {text} restarting failed container={container.name} pod={pod_label(pod)}"
    return WaitingReason("CrashLoopBackOff", message)


def pod_label(pod: Pod) -> str:
    """Return the pod's name as the kubelet's messages write it."""
    return f"{pod.metadata.name}_{pod.metadata.namespace}({pod.metadata.uid})"
