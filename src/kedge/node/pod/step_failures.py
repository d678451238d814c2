"""Failed steps of one pod, each with the delay before its next try."""

from collections.abc import Mapping

from kedge.machinery.clock import Clock
from kedge.node.pod.backoff import IMAGE_PULL, RETRIES, BackoffPolicy
from kedge.node.pod.waiting import StepFailure


class StepFailures:
    """The latest failure of each step, by container name, POD_STEP or RESIZE_STEP."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: dict[str, StepFailure] = {}

    @property
    def by_step(self) -> Mapping[str, StepFailure]:
        return self._failures

    def record(
        self,
        step: str,
        reason: str,
        message: str,
        policy: BackoffPolicy = RETRIES,
        image: str = "",
    ) -> None:
        """Record a failure. The delay doubles with each one, and starts over for another image."""
        now, before = self._clock.now().timestamp(), self._failures.get(step)
        known = before.delay if before is not None and before.image == image else None
        delay = policy.after(known, now, now)
        is_pull = policy is IMAGE_PULL
        self._failures[step] = StepFailure(
            reason, message, now, delay, is_pull=is_pull, image=image
        )

    def clear(self, step: str) -> None:
        """Forget the failure of a step that has succeeded."""
        self._failures.pop(step, None)
