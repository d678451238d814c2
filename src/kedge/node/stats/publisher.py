"""Publisher: tells every API server, as often as it is to be told, what is used here."""

import asyncio
import logging
import zlib
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from kedge.client.client import Client
from kedge.client.transport import Unreachable
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.metrics.frame import Frame
from kedge.metrics.frame_codec import CONTENT_TYPE, FrameReply, encode, path_of
from kedge.metrics.windows import TICK_SECONDS

log = logging.getLogger(__name__)

SPREAD: Final = 0.5
"""Seconds after a tick over which the nodes of a cluster spread what they send."""
MOMENTS: Final = 10
"""At so many moments within that: a server takes several reports in one go for half of what each
costs it if it has to be woken for each."""
PATIENCE: Final = 20.0
"""Seconds that a server may take to answer."""
_SLOWEST: Final = 600.0
"""Seconds that a server which refuses is left alone, at most."""

_answer = msgspec.json.Decoder(FrameReply)


class FrameSource(Protocol):
    """What is measured here (kedge.node.stats.sampler)."""

    async def next_tick(self) -> int: ...

    def has_news(self) -> bool: ...

    def frame(self, node: str, uid: str, resolution: int) -> Frame: ...


class Publisher:
    """Somebody must `run` it."""

    def __init__(
        self,
        measurements: FrameSource,
        servers: Sequence[Client],
        clock: Clock,
        *,
        node: str,
        uid: Callable[[], str],
        resolution: int,
    ) -> None:
        """`uid` is the node's, as the cluster has it now; the resolution is in seconds."""
        self._measurements = measurements
        self._servers = servers
        self._clock = clock
        self._node = node
        self._uid = uid
        self._resolution = resolution
        # Always the same place among the nodes, so that none is ever silent for longer.
        self._place = zlib.crc32(node.encode())
        self._news = (0, False)
        self._encoded = (0, 0, b"")

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for server in self._servers:
                tasks.create_task(self._tell(server))

    async def _tell(self, server: Client) -> None:
        hearing = ReportSchedule(self._resolution, self._place)
        while True:
            tick = await self._measurements.next_tick()
            if not hearing.wants(tick, self._clock.monotonic(), news=self._has_news(tick)):
                continue
            body = self._body(tick, hearing.resolution)
            await self._clock.sleep(moment(self._place))
            await self._send(server, hearing, body)

    async def _send(self, server: Client, hearing: "ReportSchedule", body: bytes) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                path = path_of(self._node)
                reply = await server.send("POST", path, body=body, content=CONTENT_TYPE)
            hearing.heard(_answer.decode(reply.body or b"{}"))
        except (Unreachable, TimeoutError, msgspec.MsgspecError) as error:
            hearing.lost(f"{error or 'no answer'}")
        except StatusError as error:
            hearing.refused(error, self._clock.monotonic())

    def _has_news(self, tick: int) -> bool:
        if self._news[0] != tick:
            self._news = (tick, self._measurements.has_news())
        return self._news[1]

    def _body(self, tick: int, resolution: int) -> bytes:
        """All servers are told the same."""
        if self._encoded[:2] != (tick, resolution):
            frame = self._measurements.frame(self._node, self._uid(), resolution)
            self._encoded = (tick, resolution, encode(frame))
        return self._encoded[2]


def moment(place: int) -> float:
    """How many seconds after a tick a node sends."""
    # Which ticks a node reports at depends on the rest of smaller divisions.
    return place // 1000 % MOMENTS / MOMENTS * SPREAD


class ReportSchedule:
    """How often one server is told."""

    def __init__(self, resolution: int, place: int) -> None:
        self._own = resolution
        self._place = place
        self.resolution = resolution
        """Seconds, as it stands now."""
        self._owed = True
        """It lacks something, so that the next tick is for it whenever its turn is."""
        self._not_before = 0.0
        self._pause = 0.0
        self._complaint = ""

    def wants(self, tick: int, now: float, *, news: bool) -> bool:
        """Whether it is to be told of this tick."""
        every = max(1, self.resolution // TICK_SECONDS)
        mine = tick % every == self._place % every
        return (mine or news or self._owed) and now >= self._not_before

    def heard(self, answer: FrameReply) -> None:
        self._owed = False
        self._pause = 0.0
        asked = answer.resolution
        self.resolution = min(self._own, max(TICK_SECONDS, asked)) if asked else self._own
        if self._complaint:
            log.info("usage is published again")
            self._complaint = ""

    def lost(self, why: str) -> None:
        self._owed = True
        self._complain(why)

    def refused(self, error: StatusError, now: float) -> None:
        """Being asked again would not please it: leave it alone, for longer each time."""
        self._owed = True
        self._pause = min(max(2 * self._pause, float(self._own), error.retry_after), _SLOWEST)
        self._not_before = now + self._pause
        self._complain(f"{error.code} {error.message}")

    def _complain(self, why: str) -> None:
        if why != self._complaint:
            log.warning("usage could not be published error=%r", why)
            self._complaint = why
