"""Back-off: how long something that keeps failing waits before it is tried again."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BackoffDelay:
    """How long the next failure has to wait, and since when."""

    seconds: float
    since: float
    """When this delay was decided on, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """Delays that double from `first` to `most`, and start over after a long time without."""

    first: float
    most: float

    def after(self, known: BackoffDelay | None, failed_at: float, now: float) -> BackoffDelay:
        """The delay that follows a failure; `known` is the one before."""
        # Whatever held out for twice the longest delay is taken to have been well.
        if known is None or failed_at - known.since > 2 * self.most:
            return BackoffDelay(self.first, now)
        return BackoffDelay(min(2 * known.seconds, self.most), now)

    def waits(self, known: BackoffDelay | None, failed_at: float, now: float) -> bool:
        """Whether what failed at that time still has to wait."""
        if known is None or now - known.since > 2 * self.most:
            return False
        return now - failed_at < known.seconds


CRASHES = BackoffPolicy(first=10, most=300)
"""Containers that end and are started again: CrashLoopBackOff."""
PULLS = BackoffPolicy(first=10, most=300)
"""Images that cannot be had: ImagePullBackOff."""
TRIALS = BackoffPolicy(first=1, most=10)
"""Everything else that may work a little later: a missing ConfigMap, a sandbox, a volume."""
