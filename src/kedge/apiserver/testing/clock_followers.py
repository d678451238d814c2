"""ClockFollowers: the nodes that follow the clock of a server for tests."""

import asyncio
from collections.abc import Iterable
from typing import Final
from uuid import uuid4

from kedge.api.testing.clock_course import ClockCourse
from kedge.machinery.travel_clock import TravelClock

POLL_SECONDS: Final = 25.0
"""How long a node waits for a change before it asks again."""
PATIENCE_SECONDS: Final = 10.0
"""How long a change of the clock waits for nodes."""


class ClockFollowers:
    """Each node keeps one request open, which a change answers. The node then moves its clock,
    renews its lease, and asks again: that request says that it has done so.

    A node whose request was broken off has ended, or its connection has. It is not waited for, and
    is still one that follows: time that is skipped counts for its silence.
    """

    def __init__(self, clock: TravelClock) -> None:
        self._clock = clock
        self._server = uuid4().hex[:8]
        """A server that was restarted has another time: its versions differ from all before."""
        self._changes = 0
        self._done: dict[str, str] = {}
        """The version that each living node has taken over."""
        self._names: set[str] = set()
        """Nodes that follow, also those that have ended."""
        self._changed = asyncio.Event()
        self._asked = asyncio.Event()
        self._turn = asyncio.Lock()
        """Changes wait one after the other: each is followed before the next is sent."""

    @property
    def version(self) -> str:
        return f"{self._server}-{self._changes}"

    async def course(self, node: str, version: str) -> ClockCourse:
        """Return the course of the clock as soon as it differs from this version."""
        self._names.add(node)
        self._done[node] = version
        self._asked.set()
        if version == self.version:
            await self._wait_for_change(node)
        return ClockCourse(version=self.version, stretches=self._clock.stretches)

    async def _wait_for_change(self, node: str) -> None:
        try:
            async with asyncio.timeout(POLL_SECONDS):
                await self._changed.wait()
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            self._done.pop(node, None)
            self._asked.set()
            raise

    async def follow(self) -> None:
        """Tell all nodes that the clock has changed; return when they have followed. Nodes that are
        late no longer count as following."""
        async with self._turn:
            self._changes += 1
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    while self._late():
                        self._asked.clear()
                        await self._asked.wait()
            except TimeoutError:
                for node in self._late():
                    self._names.discard(node)
                    self._done.pop(node, None)

    def _late(self) -> list[str]:
        return [node for node, done in self._done.items() if done != self.version]

    def behind(self, nodes: Iterable[str]) -> list[str]:
        """Return which of these nodes do not follow the clock."""
        return sorted(set(nodes) - self._names)
