"""QuotaUpkeep: looks at the quotas of a namespace again after something happened."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.storage.store import StoreError

log = logging.getLogger(__name__)

UPKEEP_SECONDS: Final = 0.2
"""How long after a write that may have come to nothing its namespace is looked at."""
RETRY_SECONDS: Final = 2.0
"""How long the next attempt waits if the store was away."""


class QuotaUpkeep:
    """The namespaces to look at."""

    def __init__(
        self, look: Callable[[str], Awaitable[None]], clock: Clock, *, after_seconds: float
    ) -> None:
        """`after_seconds` pass from the first request to the look, which is for all requests."""
        self._look = look
        self._clock = clock
        self._after_seconds = after_seconds
        self._due: set[str] = set()
        self._is_due = asyncio.Event()

    def add(self, namespace: str) -> None:
        """Have a namespace looked at."""
        self._due.add(namespace)
        self._is_due.set()

    async def run(self) -> None:
        """Look at the namespaces, until cancelled."""
        seconds = self._after_seconds
        while True:
            await self._is_due.wait()
            if seconds:
                await self._clock.sleep(seconds)
            seconds = self._after_seconds
            self._is_due.clear()
            due, self._due = self._due, set()
            for namespace in due:
                try:
                    await self._look(namespace)
                except (StoreError, StatusError) as error:
                    log.warning("quotas not brought up namespace=%s error=%s", namespace, error)
                    self.add(namespace)
                    seconds = RETRY_SECONDS
                except Exception:
                    # This work is one of the server's own tasks: an object of one tenant that
                    # raised here would end the server of all. The next write looks again.
                    log.exception("quotas skipped namespace=%s", namespace)
