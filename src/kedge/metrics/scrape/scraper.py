"""Scraper: reads the kubelets of all nodes at regular times and reports their usage as frames."""

import asyncio
import logging
import zlib
from typing import Final

from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.metrics.reports import FUTURE, LEAST_SILENCE, UsageReports
from kedge.metrics.scrape.cluster import KubeletClient, KubeletError, NodeSketch, ScrapedCluster
from kedge.metrics.scrape.page import KubeletPage, parse
from kedge.metrics.scrape.scraped_node import ScrapedNode
from kedge.metrics.window_file import WindowFile
from kedge.metrics.windows import TICK_SECONDS

log = logging.getLogger(__name__)

INTERVAL: Final = 15
"""Seconds between two pages of a node; kubelets read counters every ten to twenty seconds."""
AT_ONCE: Final = 32
"""Nodes that are read at the same time."""
PATIENCE: Final = 10.0
"""Seconds that a kubelet may take to answer."""
_LOOK_SECONDS: Final = 2.0
"""Time between two looks at the list of nodes."""


class Scraper:
    """Its owner calls `run`."""

    def __init__(
        self,
        reports: UsageReports,
        cluster: ScrapedCluster,
        kubelets: KubeletClient,
        windows: WindowFile,
        clock: Clock,
        *,
        interval: int = INTERVAL,
    ) -> None:
        self._reports = reports
        self._cluster = cluster
        self._kubelets = kubelets
        self._windows = windows
        self._clock = clock
        self._interval = interval
        self._places = asyncio.Semaphore(AT_ONCE)
        self._nodes: dict[str, ScrapedNode] = {}
        self._last_ticks: dict[str, int] = {}
        """The last tick that was reported from here, by node."""
        self._errors: dict[str, str] = {}
        """The last logged error of each node."""
        self.counts = {"read": 0, "failed": 0, "refused": 0, "left-alone": 0, "foreign": 0}
        """Pages read, kubelets that failed, frames refused, nodes left alone because they report
        themselves, and names on pages that are not the node's."""

    async def run(self) -> None:
        """Scrape until cancelled."""
        self._release_unused()
        followed: dict[str, asyncio.Task[None]] = {}
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    there = {node.metadata.name for node in self._cluster.nodes()}
                    for name in there - followed.keys():
                        followed[name] = tasks.create_task(self._follow(name))
                    for name in followed.keys() - there:
                        followed.pop(name).cancel()
                        await self._forget(name)
                    await self._clock.sleep(_LOOK_SECONDS)
        finally:
            await self._kubelets.close()
            self._windows.close()

    async def _follow(self, name: str) -> None:
        """Read one node again and again, always at the same point of the interval."""
        phase = zlib.crc32(name.encode()) % (self._interval * 1000) / 1000
        while True:
            async with self._places:
                try:
                    await self.scrape(name)
                except Exception:
                    self.counts["failed"] += 1
                    log.exception("could not use the kubelet's metrics node=%s", name)
            now = self._clock.now().timestamp()
            await self._clock.sleep(self._interval - (now - phase) % self._interval)

    async def scrape(self, name: str) -> None:
        """Read one node; its errors are logged and counted."""
        node = self._cluster.node(name)
        if node is None:
            return
        if self._reports_itself(name):
            self.counts["left-alone"] += 1
            return
        try:
            async with asyncio.timeout(PATIENCE):
                text = await self._kubelets.fetch(node)
            page = self._checked(parse(text, self._clock.now().timestamp()))
        except (KubeletError, OSError) as error:
            self._failed(name, str(error) or f"no answer within {PATIENCE:g} s")
            return
        self.counts["read"] += 1
        if self._errors.pop(name, ""):
            log.info("kubelet answers again node=%s", name)
        self._take(node, page)

    def _checked(self, page: KubeletPage) -> KubeletPage:
        if page.machine is None:
            raise KubeletError("the kubelet reports no metrics of its node")
        ahead = page.machine.time - self._clock.now().timestamp()
        if ahead > FUTURE:
            raise KubeletError(
                f"the kubelet's timestamps are {ahead:.0f} s from now: compare its clock"
            )
        return page

    def _take(self, node: NodeSketch, page: KubeletPage) -> None:
        name, uid = node.metadata.name, node.metadata.uid
        scraped = self._nodes.get(name)
        if scraped is None or scraped.uid != uid:
            if scraped is not None:
                scraped.forget()
            scraped = self._nodes[name] = ScrapedNode(name, uid, self._windows)
        before = scraped.foreign
        frame = scraped.take(page, self._cluster.pod, self._interval)
        self.counts["foreign"] += scraped.foreign - before
        if frame is None:
            return
        try:
            self._reports.take(name, frame)
        except StatusError as error:
            self.counts["refused"] += 1
            self._log_once(name, error.message)
        else:
            self._last_ticks[name] = frame.end_tick

    def _reports_itself(self, name: str) -> bool:
        """Whether the node sends frames: these are measured each second and hence better."""
        entry = self._reports.nodes.get("", name)
        if entry is None or not entry.listed or entry.end_tick <= self._last_ticks.get(name, 0):
            return False
        age = self._clock.now().timestamp() - entry.end_tick * TICK_SECONDS
        return age < max(LEAST_SILENCE, 3 * self._interval)

    def _failed(self, name: str, why: str) -> None:
        self.counts["failed"] += 1
        self._log_once(name, why)

    def _log_once(self, name: str, why: str) -> None:
        if self._errors.get(name) != why:
            self._errors[name] = why
            log.warning("kubelet not read node=%s error=%r", name, why)

    async def _forget(self, name: str) -> None:
        scraped = self._nodes.pop(name, None)
        if scraped is not None:
            scraped.forget()
        self._last_ticks.pop(name, None)
        self._errors.pop(name, None)
        await self._kubelets.forget(name)

    def _release_unused(self) -> None:
        """Release the slots of nodes and pods that no longer exist."""
        there = self._cluster.uids()
        for slot in self._windows:
            if slot.key.uid not in there:
                self._windows.release(slot.key)
