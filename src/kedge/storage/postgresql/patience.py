"""Patience: how long requests are repeated while the server is away."""

from typing import Final

from kedge.machinery.clock import Clock

PATIENCE_SECONDS: Final = 8.0
"""So that a restart of the server, or the promotion of a standby, is not noticed by clients."""
RETRY_SECONDS: Final = 0.1


class Patience:
    """Shared by all requests of a store: when the server has been away for a while, those that
    come later learn so at once."""

    def __init__(self, clock: Clock) -> None:
        """`clock` is that of the machine."""
        self._clock = clock
        self._failing_since: float | None = None

    def of_one(self) -> "Patience":
        """Return the patience with one request, whatever becomes of the others: a query that takes
        too long each time would be repeated for as long as they are answered."""
        return Patience(self._clock)

    def answered(self) -> None:
        self._failing_since = None

    def is_over(self) -> bool:
        """Note a failure; returns whether requests are not to be repeated any more."""
        now = self._clock.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        return now - self._failing_since > PATIENCE_SECONDS

    async def pause(self) -> None:
        """Wait before the next attempt."""
        await self._clock.sleep(RETRY_SECONDS)
