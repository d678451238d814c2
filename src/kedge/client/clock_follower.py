"""ClockFollower: keeps the clock of a node together with that of its server, in clusters for
tests."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from kedge.api.testing.clock_course import ClockCourse
from kedge.client.client import Client
from kedge.machinery.errors import StatusError
from kedge.machinery.travel_clock import TravelClock
from kedge.settings.cluster import COURSE_PATH

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 0.2
RENEWAL_SECONDS: Final = 2.0
"""Time for the renewal of the lease after a change. A node whose requests fail on purpose does not
delay others."""


class ClockFollower:
    """Its owner calls `learn` before anything else asks for the time, and then `run`."""

    def __init__(self, client: Client, clock: TravelClock) -> None:
        self._client = client
        self._clock = clock
        self._version = ""

    async def learn(self) -> bool:
        """Take over the server's time; return whether the server has one of its own."""
        while True:
            try:
                await self._next()
                return True
            except StatusError as error:
                if error.code in (403, 404):
                    log.warning("the server was not started for tests; its time is the machine's")
                    return False
                await self._clock.machine.sleep(RETRY_SECONDS)
            except OSError:
                await self._clock.machine.sleep(RETRY_SECONDS)

    async def run(
        self, renew: Callable[[], Awaitable[None]], patience: float = RENEWAL_SECONDS
    ) -> None:
        """Follow the server's clock until cancelled. The lease is renewed after each change; asking
        for the next one tells the server that this is done. `patience` is the number of seconds
        that a renewal may take."""
        while True:
            try:
                if await self._next():
                    await self._renew(renew, patience)
            except (StatusError, OSError) as error:
                log.debug("the server's clock is not known error=%s", error)
                await self._clock.machine.sleep(RETRY_SECONDS)

    async def _next(self) -> bool:
        """Wait for a change; return whether there was one."""
        query = {"version": self._version}
        reply = await self._client.send("GET", COURSE_PATH, query)
        course = msgspec.json.decode(reply.body, type=ClockCourse)
        if course.version == self._version:
            return False
        self._version = course.version
        self._clock.follow(course.stretches)
        return True

    async def _renew(self, renew: Callable[[], Awaitable[None]], patience: float) -> None:
        try:
            async with asyncio.timeout(patience):
                await renew()
        except (TimeoutError, StatusError, OSError) as error:
            log.info("lease not renewed after a change of the clock error=%s", error)
