"""How long clients of rejected requests wait: longer while their priority level rejects many."""

from collections import deque
from typing import Final

LONGEST_SECONDS: Final = 32


class DroppedRequests:
    """The rejections of one priority level in the last seconds."""

    def __init__(self) -> None:
        self.retry_after = 1
        """Seconds after which clients may try again."""
        self._past: deque[tuple[int, int]] = deque()
        """Earlier seconds with their rejections, the oldest first."""
        self._second = 0
        self._count = 0
        self._raised = -LONGEST_SECONDS

    def record(self, second: int) -> int:
        """Count a rejection; return how long its client is to wait.

        As with TCP, the time doubles if many were rejected in the last `retry_after` seconds, at
        most once in that time, and falls by one second if few were. Rejections of the present
        second count from the next one on.
        """
        if second == self._second:
            self._count += 1
        else:
            self._keep(self._second, self._count)
            self._second, self._count = second, 1
            self._adjust(second)
        return self.retry_after

    def _keep(self, second: int, count: int) -> None:
        self._past.append((second, count))
        oldest = second - min(2 * self.retry_after, LONGEST_SECONDS)
        while self._past[0][0] < oldest:
            self._past.popleft()

    def _adjust(self, second: int) -> None:
        wait = self.retry_after
        recent = sum(count for at, count in self._past if second - wait <= at < second)
        if recent >= 3 * wait and second - self._raised >= wait:
            self.retry_after = min(2 * wait, LONGEST_SECONDS)
            self._raised = second
        elif recent < wait and wait > 1:
            self.retry_after = wait - 1
