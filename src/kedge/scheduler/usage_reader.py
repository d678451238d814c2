"""PodUsageReader: reads the usage of pods node by node, for nodes with new reports.

To follow every report of every pod would cost several times as much as to take the reports in, and
what a pod usually uses hardly changes from one to the next. Nodes with new pods are read oftener.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from kedge.api.metrics_v1alpha1 import pod as pod_metrics
from kedge.client.client import Client
from kedge.client.view import sketches
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.metrics.selection import DETAILS
from kedge.scheduler.snapshot import Snapshot
from kedge.scheduler.usage import PodReport, PodUsage, used_by_pod

log = logging.getLogger(__name__)

SOON: Final = 8.0
"""Seconds after which the pods of a node are read again if some of them are new: with each report,
also if one comes a little early."""
LATER: Final = 55.0
"""Seconds after which they are read again if none is: of reports each ten seconds the sixth."""
PACE: Final = 500
"""Pods that are read in a second, at most."""
AT_ONCE: Final = 100
"""Pods that are read without a pause if there was one before."""

_view = sketches(pod_metrics.RESOURCE, PodReport, **{DETAILS: "false"})


class NodeReading:
    """The last read of the pods of one node."""

    __slots__ = ("at", "interval", "new", "uids")

    def __init__(self) -> None:
        self.at = float("-inf")
        """When they were read."""
        self.interval = SOON
        """Seconds after which they should be read again."""
        self.new = 0
        """How many on the node had not been measured for a minute then."""
        self.uids: tuple[str, ...] = ()
        """The pods that the last read contained."""


class PodUsageReader:
    """Reads the usage of pods while `run` runs. New figures do not wake the scheduler."""

    def __init__(self, client: Client, snapshot: Snapshot, clock: Clock) -> None:
        self._client = client
        self._snapshot = snapshot
        self._clock = clock
        self._rounds: dict[str, NodeReading] = {}
        self._due: dict[str, None] = {}
        """Nodes whose pods are to be read, in this order."""
        self._wake = asyncio.Event()
        self._free = float("-inf")
        """When all that was read would have been read at the right pace."""

    def nodes(self) -> Iterable[str]:
        """The nodes that have reported."""
        return self._rounds.keys()

    def reported(self, name: str) -> None:
        """A node has reported; read its pods if that is due."""
        found = self._rounds.setdefault(name, NodeReading())
        age = self._clock.monotonic() - found.at
        if age >= found.interval or (age >= SOON and self._strangers(name) > found.new):
            self._due[name] = None
            self._wake.set()

    def forget(self, name: str) -> None:
        """A node no longer reports: what was said of its pods does not count any more."""
        self._due.pop(name, None)
        found = self._rounds.pop(name, None)
        for uid in found.uids if found is not None else ():
            self._forget_pod(uid)

    async def run(self) -> None:
        """For ever; cancel it to stop."""
        while True:
            while self._due:
                name = next(iter(self._due))
                del self._due[name]
                await self._read(name)
                await self._keep_pace()
            self._wake.clear()
            await self._wake.wait()

    async def _read(self, name: str) -> None:
        try:
            listing = await self._client.list_as(_view, fields=f"spec.nodeName={name}")
        except (StatusError, OSError) as error:
            # Its next report makes it due again.
            log.warning("cannot read the usage of pods node=%s error=%r", name, str(error))
            return
        now = self._clock.monotonic()
        self._free = max(self._free, now) + len(listing.items) / PACE
        # It may have been forgotten meanwhile.
        if name in self._rounds:
            self.take(name, listing.items)

    async def _keep_pace(self) -> None:
        ahead = self._free - self._clock.monotonic()
        if ahead > AT_ONCE / PACE:
            await self._clock.sleep(ahead)

    def take(self, name: str, reports: Iterable[PodReport]) -> None:
        """This is all that is said of the pods of a node."""
        found = self._rounds.setdefault(name, NodeReading())
        measured = {
            self._kept_uid(report.metadata.uid): used
            for report in reports
            if (used := used_by_pod(report)) is not None
        }
        for uid in found.uids:
            if uid not in measured:
                self._forget_pod(uid)
        for uid, used in measured.items():
            self._snapshot.measure_pod(uid, used)
        found.uids = tuple(measured)
        self._plan(found, self._new(name, measured))

    def _kept_uid(self, uid: str) -> str:
        """The same uid as the snapshot keeps: 85 bytes less of each pod."""
        demand = self._snapshot.placed(uid)
        return uid if demand is None else demand.uid

    def _plan(self, found: NodeReading, new: int) -> None:
        """When to read again: soon as long as something is still to be learnt. Of pods that cannot
        start nothing will ever be said, so patience grows."""
        if not new:
            found.interval = LATER
        else:
            found.interval = SOON if new != found.new else min(2 * found.interval, LATER)
        found.new = new
        found.at = self._clock.monotonic()

    def _new(self, name: str, measured: dict[str, PodUsage]) -> int:
        young = sum(not each.minute for each in measured.values())
        return young + self._strangers(name)

    def _strangers(self, name: str) -> int:
        """How many pods of a node nothing is known of."""
        state = self._snapshot.nodes.get(name)
        return 0 if state is None else self._snapshot.usage.strangers(state.pods)

    def _forget_pod(self, uid: str) -> None:
        self._snapshot.usage.remove_pod(uid)
        self._snapshot.reconsider(self._snapshot.home(uid))
