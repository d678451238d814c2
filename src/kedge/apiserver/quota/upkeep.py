"""QuotaUpkeep: looks at the quotas of a namespace again, a moment after something happened."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.storage.store import StoreError

log = logging.getLogger(__name__)

UPKEEP_SECONDS: Final = 0.2
"""How long after the first request the namespace is looked at, once for all requests."""
RETRY_SECONDS: Final = 2.0
"""How long the next attempt waits if the store was away."""


class QuotaUpkeep:
    """The namespaces to look at."""

    def __init__(self, look: Callable[[str, bool], Awaitable[None]], clock: Clock) -> None:
        """`look` gets a namespace, and whether used amounts may have fallen there."""
        self._look = look
        self._clock = clock
        self._due: dict[str, bool] = {}
        self._is_due = asyncio.Event()

    def soon(self, namespace: str, *, may_fall: bool) -> None:
        """Have a namespace looked at."""
        self._due[namespace] = may_fall or self._due.get(namespace, False)
        self._is_due.set()

    async def run(self) -> None:
        """Look at the namespaces, until cancelled."""
        seconds = UPKEEP_SECONDS
        while True:
            await self._is_due.wait()
            await self._clock.sleep(seconds)
            seconds = UPKEEP_SECONDS
            self._is_due.clear()
            due, self._due = self._due, {}
            for namespace, may_fall in due.items():
                try:
                    await self._look(namespace, may_fall)
                except (StoreError, StatusError) as error:
                    log.warning("quotas not brought up namespace=%s error=%s", namespace, error)
                    self.soon(namespace, may_fall=may_fall)
                    seconds = RETRY_SECONDS
