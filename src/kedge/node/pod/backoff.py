"""Back-off: the delay before something that keeps failing is tried again."""

import msgspec


class BackoffDelay(msgspec.Struct, frozen=True):
    """A delay, and when it was decided on."""

    seconds: float
    since: float
    """Seconds since the epoch."""


class BackoffPolicy(msgspec.Struct, frozen=True):
    """Delays that double from `first` to `most`, and start over after a long time without a
    failure."""

    first: float
    most: float

    def after(self, known: BackoffDelay | None, failed_at: float, now: float) -> BackoffDelay:
        """Return the delay that follows a failure; `known` is the previous delay."""
        # As in the kubelet: an item that ran for twice the longest delay has recovered.
        if known is None or failed_at - known.since > 2 * self.most:
            return BackoffDelay(self.first, now)
        return BackoffDelay(min(2 * known.seconds, self.most), now)

    def waits(self, known: BackoffDelay | None, failed_at: float, now: float) -> bool:
        """Return whether an item that failed at that time still has to wait."""
        if known is None or now - known.since > 2 * self.most:
            return False
        return now - failed_at < known.seconds


# IMAGE_PULL and CRASH_LOOP are equal but not the same: StepFailures compares by identity.
CRASH_LOOP = BackoffPolicy(first=10, most=300)
"""Containers that end and are started again: CrashLoopBackOff."""
IMAGE_PULL = BackoffPolicy(first=10, most=300)
"""Images that cannot be pulled: ImagePullBackOff."""
RETRIES = BackoffPolicy(first=1, most=10)
"""Everything else that may succeed later: a missing ConfigMap, a sandbox, a volume."""
