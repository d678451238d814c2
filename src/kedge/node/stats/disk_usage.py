"""DiskUsage: walks over what containers have written, slowly and outside of the event loop."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from kedge.machinery.clock import Clock
from kedge.metrics.windows import TICK_SECONDS
from kedge.node.stats.disk_walk import DiskTotal, DiskWalk

PASS_ENTRIES: Final = 2_000
"""Entries in one pass: ten milliseconds of processor time, of ten seconds."""
_SLICE: Final = 200
"""Entries of one walk before the next has its turn: a container with a million files does not keep
others from being measured."""
REST_SECONDS: Final = 60.0
"""Seconds between two walks over the same directories, at least; and as long as a walk took."""
_WALKS: Final = ThreadPoolExecutor(1, "disk-usage")


class DiskKey(NamedTuple):
    """A container; without a container what belongs to the pod itself."""

    uid: str
    container: str


class DiskSubject(NamedTuple):
    """Something that writes to directories."""

    key: DiskKey
    directories: Sequence[Path]
    shallow: Sequence[Path]
    """Directories whose files count, but not their subdirectories."""
    spent: int
    """Its processor time so far; negative if unknown. If it has not run, it has written nothing."""


class DiskTotals(Protocol):
    """The newest totals."""

    def of(self, key: DiskKey) -> DiskTotal | None: ...


class NoDiskTotals:
    """Nothing is known. Fulfils DiskTotals."""

    def of(self, key: DiskKey) -> DiskTotal | None:
        return None


class _Walked:
    """The walks over the directories of one subject."""

    def __init__(self) -> None:
        self.total: DiskTotal | None = None
        self.walks: list[DiskWalk] = []
        self.begun = 0.0
        self.not_before = 0.0
        self.spent = -1

    def close(self) -> None:
        for walk in self.walks:
            walk.close()


class DiskUsage:
    """Its owner calls `run`. Fulfils DiskTotals."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[DiskKey, _Walked] = {}
        self._turn = 0

    def of(self, key: DiskKey) -> DiskTotal | None:
        """The content of its directories at the end of the last walk; None before that."""
        found = self._known.get(key)
        return found.total if found is not None else None

    async def run(self, subjects: Callable[[], Iterable[DiskSubject]]) -> None:
        """Walk until cancelled."""
        try:
            while True:
                await self.walk_some(subjects())
                await self._clock.sleep(TICK_SECONDS)
        finally:
            for each in self._known.values():
                each.close()

    async def walk_some(self, subjects: Iterable[DiskSubject]) -> None:
        """One pass, in a thread."""
        now = self._clock.monotonic()
        wanted = {each.key: each for each in subjects}
        for key in self._known.keys() - wanted.keys():
            self._known.pop(key).close()
        for key, subject in wanted.items():
            self._begin(self._known.setdefault(key, _Walked()), subject, now)
        active = [each for each in self._known.values() if each.walks]
        if not active:
            return
        self._turn = (self._turn + 1) % len(active)
        order = active[self._turn :] + active[: self._turn]
        loop = asyncio.get_running_loop()
        # The thread must have ended before a walk is closed, even if this task is cancelled.
        walking = loop.run_in_executor(_WALKS, _advance, order)
        try:
            await asyncio.shield(walking)
        except asyncio.CancelledError:
            await walking
            raise
        for each in active:
            self._end(each)

    def _begin(self, walked: _Walked, subject: DiskSubject, now: float) -> None:
        if walked.walks or now < walked.not_before:
            return
        if walked.total is not None and 0 <= subject.spent == walked.spent:
            return
        walked.begun, walked.spent = now, subject.spent
        walked.walks = [
            DiskWalk([str(each) for each in subject.directories]),
            DiskWalk([str(each) for each in subject.shallow], top_only=True),
        ]

    def _end(self, walked: _Walked) -> None:
        if not all(walk.done for walk in walked.walks):
            return
        totals = [walk.total for walk in walked.walks]
        walked.total = DiskTotal(sum(each.bytes for each in totals), sum(x.inodes for x in totals))
        walked.walks = []
        now = self._clock.monotonic()
        walked.not_before = now + max(REST_SECONDS, now - walked.begun)


def _advance(active: Sequence[_Walked]) -> None:
    """Let the walks take turns until the pass is over."""
    left = PASS_ENTRIES
    waiting = [walk for each in active for walk in each.walks if not walk.done]
    while waiting and left > 0:
        for walk in waiting:
            left -= walk.advance(_SLICE)
            if left <= 0:
                return
        waiting = [walk for walk in waiting if not walk.done]
