"""Publisher: sends frames to every API server, at the resolution that each one asks for."""

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
"""Seconds after a tick over which the nodes of a cluster spread their frames."""
MOMENTS: Final = 5
"""Points of time within that. Frames that arrive together cost a server half as much as frames that
wake it one by one. With half as many moments, those of a hundred nodes cost a fifth less."""
PATIENCE: Final = 20.0
"""Seconds that a server may take to answer."""
_SLOWEST: Final = 600.0
"""The longest pause, in seconds, after a server has refused frames."""

_answer = msgspec.json.Decoder(FrameReply)


class FrameSource(Protocol):
    """Makes frames (kedge.node.stats.sampler)."""

    async def next_tick(self) -> int: ...

    def has_news(self) -> bool: ...

    def frame(self, node: str, uid: str, resolution: int) -> Frame: ...


class Publisher:
    """Its owner calls `run`."""

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
        """`uid` returns the current uid of the node; the resolution is in seconds."""
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
        """Publish until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for server in self._servers:
                tasks.create_task(self._publish(server))

    async def _publish(self, server: Client) -> None:
        schedule = ReportSchedule(self._resolution, self._place)
        while True:
            tick = await self._measurements.next_tick()
            if not schedule.is_due(tick, self._clock.monotonic(), news=self._has_news(tick)):
                continue
            body = self._body(tick, schedule.resolution)
            await self._clock.sleep(moment(self._place))
            await self._send(server, schedule, body)

    async def _send(self, server: Client, schedule: "ReportSchedule", body: bytes) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                path = path_of(self._node)
                reply = await server.send("POST", path, body=body, content=CONTENT_TYPE)
            schedule.accepted(_answer.decode(reply.body or b"{}"))
        except (Unreachable, TimeoutError, msgspec.MsgspecError) as error:
            schedule.lost(f"{error or 'no answer'}")
        except StatusError as error:
            schedule.refused(error, self._clock.monotonic())

    def _has_news(self, tick: int) -> bool:
        if self._news[0] != tick:
            self._news = (tick, self._measurements.has_news())
        return self._news[1]

    def _body(self, tick: int, resolution: int) -> bytes:
        """The encoded frame, the same for all servers."""
        if self._encoded[:2] != (tick, resolution):
            frame = self._measurements.frame(self._node, self._uid(), resolution)
            self._encoded = (tick, resolution, encode(frame))
        return self._encoded[2]


def moment(place: int) -> float:
    """The delay of a node after each tick, in seconds."""
    # Which ticks a node reports at depends on the rest of smaller divisions.
    return place // 1000 % MOMENTS / MOMENTS * SPREAD


class ReportSchedule:
    """The ticks at which one server gets a frame."""

    def __init__(self, resolution: int, place: int) -> None:
        self._own = resolution
        self._place = place
        self.resolution = resolution
        """Seconds between two frames."""
        self._owed = True
        """Whether the last frame was lost, so that the next tick is sent out of turn."""
        self._not_before = 0.0
        self._pause = 0.0
        self._logged = ""

    def has(self, resolution: int) -> bool:
        """Whether this is the node's own resolution."""
        return self._own == resolution

    def is_due(self, tick: int, now: float, *, news: bool) -> bool:
        """Whether to send a frame of this tick."""
        every = max(1, self.resolution // TICK_SECONDS)
        mine = tick % every == self._place % every
        return (mine or news or self._owed) and now >= self._not_before

    def accepted(self, answer: FrameReply) -> None:
        self._owed = False
        self._pause = 0.0
        asked = answer.resolution
        self.resolution = min(self._own, max(TICK_SECONDS, asked)) if asked else self._own
        if self._logged:
            log.info("usage is published again")
            self._logged = ""

    def lost(self, why: str) -> None:
        self._owed = True
        self._log_once(why)

    def refused(self, error: StatusError, now: float) -> None:
        """Pause after a refusal, longer each time."""
        self._owed = True
        self._pause = min(max(2 * self._pause, float(self._own), error.retry_after), _SLOWEST)
        self._not_before = now + self._pause
        self._log_once(f"{error.code} {error.message}")

    def _log_once(self, why: str) -> None:
        if why != self._logged:
            log.warning("usage could not be published error=%r", why)
            self._logged = why
