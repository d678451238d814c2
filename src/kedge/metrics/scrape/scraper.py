"""Scraper: reads what the kubelets of all nodes say, each at its own moment, and makes windows."""

import asyncio
import logging
import zlib
from collections.abc import Iterator
from typing import Final

from kedge.apiserver.metrics.cluster import Known, KnownNode
from kedge.apiserver.metrics.kubelets import Kubelets, Unanswered
from kedge.apiserver.telemetry import Values
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.metrics.reports import FUTURE, LEAST_SILENCE, Latest
from kedge.metrics.scrape.page import Page, parse
from kedge.metrics.scrape.scraped_node import Gathered
from kedge.metrics.series import TICK
from kedge.metrics.window_file import Store

log = logging.getLogger(__name__)

INTERVAL: Final = 15
"""Seconds between two readings of a node; kubelets have something new every ten to twenty."""
AT_ONCE: Final = 32
"""Nodes that are read at the same time."""
PATIENCE: Final = 10.0
"""Seconds that a kubelet may take."""
_LOOK: Final = 2.0
"""Seconds between two looks at which nodes there are."""


class Scraper:
    """Somebody must `run` it."""

    def __init__(
        self,
        latest: Latest,
        known: Known,
        kubelets: Kubelets,
        store: Store,
        clock: Clock,
        *,
        interval: int = INTERVAL,
    ) -> None:
        self._latest = latest
        self._known = known
        self._kubelets = kubelets
        self._store = store
        self._clock = clock
        self._interval = interval
        self._places = asyncio.Semaphore(AT_ONCE)
        self._gathered: dict[str, Gathered] = {}
        self._given: dict[str, int] = {}
        """The last tick that was taken from here, by node."""
        self._complaints: dict[str, str] = {}
        self.counts = {"read": 0, "failed": 0, "refused": 0, "left-alone": 0, "foreign": 0}
        """How often kubelets were read and could not be, and how often what they said was refused;
        nodes left alone because they report by themselves; names that were not the node's."""

    async def run(self) -> None:
        """Until cancelled."""
        self._forget_strangers()
        followed: dict[str, asyncio.Task[None]] = {}
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    there = {node.metadata.name for node in self._known.nodes()}
                    for name in there - followed.keys():
                        followed[name] = tasks.create_task(self._follow(name))
                    for name in followed.keys() - there:
                        followed.pop(name).cancel()
                        await self._forget(name)
                    await self._clock.sleep(_LOOK)
        finally:
            await self._kubelets.close()
            self._store.close()

    async def _follow(self, name: str) -> None:
        """Read one node again and again, always at the same moment of the interval."""
        phase = zlib.crc32(name.encode()) % (self._interval * 1000) / 1000
        while True:
            async with self._places:
                try:
                    await self.scrape(name)
                except Exception:
                    self.counts["failed"] += 1
                    log.exception("what the kubelet said could not be used node=%s", name)
            now = self._clock.now().timestamp()
            await self._clock.sleep(self._interval - (now - phase) % self._interval)

    async def scrape(self, name: str) -> None:
        """Read one node; whatever comes of that is nobody else's matter."""
        node = self._known.node(name)
        if node is None:
            return
        if self._reports(name):
            self.counts["left-alone"] += 1
            return
        try:
            async with asyncio.timeout(PATIENCE):
                text = await self._kubelets.fetch(node)
            page = self._checked(parse(text, self._clock.now().timestamp()))
        except (Unanswered, OSError) as error:
            self._failed(name, str(error) or f"no answer within {PATIENCE:g} s")
            return
        self.counts["read"] += 1
        if self._complaints.pop(name, ""):
            log.info("kubelet answers again node=%s", name)
        self._take(node, page)

    def _checked(self, page: Page) -> Page:
        if page.machine is None:
            raise Unanswered("the kubelet says nothing of its node")
        ahead = page.machine.time - self._clock.now().timestamp()
        if ahead > FUTURE:
            raise Unanswered(f"what the kubelet says is {ahead:.0f} s from now: compare its clock")
        return page

    def _take(self, node: KnownNode, page: Page) -> None:
        name, uid = node.metadata.name, node.metadata.uid
        gathered = self._gathered.get(name)
        if gathered is None or gathered.uid != uid:
            if gathered is not None:
                gathered.forget()
            gathered = self._gathered[name] = Gathered(name, uid, self._store)
        before = gathered.foreign
        frame = gathered.take(page, self._known.pod, self._interval)
        self.counts["foreign"] += gathered.foreign - before
        if frame is None:
            return
        try:
            self._latest.take(name, frame)
        except StatusError as error:
            self.counts["refused"] += 1
            self._complain(name, error.message)
        else:
            self._given[name] = frame.end_tick

    def _reports(self, name: str) -> bool:
        """Whether the node tells by itself what it uses: then it knows better."""
        entry = self._latest.nodes.get("", name)
        if entry is None or not entry.listed or entry.end_tick <= self._given.get(name, 0):
            return False
        age = self._clock.now().timestamp() - entry.end_tick * TICK
        return age < max(LEAST_SILENCE, 3 * self._interval)

    def _failed(self, name: str, why: str) -> None:
        self.counts["failed"] += 1
        self._complain(name, why)

    def _complain(self, name: str, why: str) -> None:
        if self._complaints.get(name) != why:
            self._complaints[name] = why
            log.warning("kubelet not read node=%s error=%r", name, why)

    async def _forget(self, name: str) -> None:
        gathered = self._gathered.pop(name, None)
        if gathered is not None:
            gathered.forget()
        self._given.pop(name, None)
        self._complaints.pop(name, None)
        await self._kubelets.forget(name)

    def _forget_strangers(self) -> None:
        """Let go of what is known of nodes and pods that are not there any more."""
        there = self._known.uids()
        for slot in self._store:
            if slot.key.uid not in there:
                self._store.release(slot.key)


def outcomes(scraper: Scraper) -> tuple[str, str, Values]:
    """What is told of it on /metrics: name, text and values of a counter."""

    def read() -> Iterator[tuple[str, float]]:
        for what, number in sorted(scraper.counts.items()):
            yield f'outcome="{what}"', number

    return "kedge_metrics_scrapes_total", "Readings of kubelets, by what became of them.", read
