"""How often servers are told what is used here, and what they may say to it."""

import asyncio
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from kedge.client.client import Client
from kedge.client.transport import Call, Reply, Stream, Unreachable
from kedge.metrics.frame import WIDTH, Frame
from kedge.metrics.frame_codec import CONTENT_TYPE, decode
from kedge.node.stats.publisher import Publisher
from kedge.testing.clock import FakeClock

OK = Reply(200, {}, b"{}")


class Server:
    """Takes what it is sent, and answers as it is told."""

    def __init__(self) -> None:
        self.got: list[Call] = []
        self.answers: list[Reply | Exception] = []

    @property
    def ticks(self) -> list[int]:
        return [decode(call.body).end_tick for call in self.got]

    async def send(self, call: Call) -> Reply:
        self.got.append(call)
        answer = self.answers.pop(0) if self.answers else OK
        if isinstance(answer, Exception):
            raise answer
        return answer

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[Stream]:
        raise NotImplementedError
        yield

    async def close(self) -> None:
        pass


class Measured:
    """A tick whenever the test says so."""

    def __init__(self) -> None:
        self.tick = 100
        self.news = False
        self.frames = 0
        self._waiting: list[asyncio.Future[int]] = []

    async def next_tick(self) -> int:
        self._waiting.append(asyncio.get_running_loop().create_future())
        return await self._waiting[-1]

    def has_news(self) -> bool:
        return self.news

    def frame(self, node: str, uid: str, resolution: int) -> Frame:
        self.frames += 1
        return Frame(node, uid, self.tick, resolution, 1, (), (), array("f", [0.5] * WIDTH))

    def end_tick(self) -> None:
        self.tick += 1
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.set_result(self.tick)


@asynccontextmanager
async def publishing(
    measured: Measured, *servers: Server, resolution: int, node: str = "n1"
) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
    clock = FakeClock()
    publisher = Publisher(
        measured,
        [Client(server) for server in servers],
        clock,
        node=node,
        uid=lambda: "node-uid",
        resolution=resolution,
    )

    async def pass_ticks(count: int) -> None:
        for _ in range(count):
            await clock.advance(9)
            measured.end_tick()
            await clock.advance(1)

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(publisher.run())
        yield pass_ticks
        running.cancel()


async def test_point_4_a_minute_is_the_resolution_and_others_can_be_chosen() -> None:
    for resolution, every in ((60, 6), (10, 1), (30, 3)):
        measured, server = Measured(), Server()
        async with publishing(measured, server, resolution=resolution) as ticks:
            await ticks(25)
        # The first tick tells a server that may know nothing; then it is each node's own turn.
        first, *rest = server.ticks
        assert first == 101
        assert {after - before for before, after in pairwise(rest)} == {every}
        assert {decode(call.body).resolution for call in server.got} == {resolution}


async def test_point_28_what_is_sent_is_one_request_as_the_node_itself() -> None:
    measured, server = Measured(), Server()
    async with publishing(measured, server, resolution=60) as ticks:
        await ticks(1)
    (call,) = server.got
    assert (call.method, call.path) == ("POST", "/kedge/metrics/v1/nodes/n1")
    assert call.headers["content-type"] == CONTENT_TYPE
    frame = decode(call.body)
    assert (frame.node, frame.uid) == ("n1", "node-uid")


async def test_nodes_spread_what_they_send_over_the_interval() -> None:
    turns = set()
    for number in range(40):
        measured, server = Measured(), Server()
        async with publishing(measured, server, resolution=60, node=f"n{number}") as ticks:
            await ticks(9)
        turns.add(server.ticks[1] % 6)
    assert turns == set(range(6))


async def test_every_server_is_told_the_same_even_if_one_is_gone() -> None:
    measured, good, bad = Measured(), Server(), Server()
    bad.answers = [Unreachable("connection refused")] * 3
    async with publishing(measured, good, bad, resolution=10) as ticks:
        await ticks(5)
    assert good.ticks == bad.ticks == [101, 102, 103, 104, 105]
    assert [call.body for call in good.got] == [call.body for call in bad.got]
    assert measured.frames == 5


async def test_a_server_that_was_gone_is_told_at_the_next_tick() -> None:
    measured, server = Measured(), Server()
    server.answers = [Unreachable("gone"), Unreachable("gone")]
    async with publishing(measured, server, resolution=60) as ticks:
        await ticks(3)
    assert server.ticks == [101, 102, 103]


async def test_a_server_that_has_too_much_to_do_is_left_alone() -> None:
    measured, server = Measured(), Server()
    status = b'{"kind":"Status","code":429,"details":{"retryAfterSeconds":45},"message":"busy"}'
    server.answers = [Reply(429, {}, status)] * 2
    async with publishing(measured, server, resolution=10) as ticks:
        await ticks(25)
    # After 45 seconds, then after twice that; then as before.
    assert server.ticks[:4] == [101, 106, 116, 117]


async def test_a_server_may_ask_for_every_tick_and_stop_asking() -> None:
    measured, server = Measured(), Server()
    asking = Reply(200, {}, b'{"resolution":10}')
    server.answers = [asking, asking, asking, OK]
    async with publishing(measured, server, resolution=60) as ticks:
        await ticks(10)
    assert server.ticks[:4] == [101, 102, 103, 104]
    assert len(server.ticks) < 7


async def test_a_server_cannot_ask_for_less_than_the_node_was_told() -> None:
    measured, server = Measured(), Server()
    server.answers = [Reply(200, {}, b'{"resolution":3600}')]
    async with publishing(measured, server, resolution=10) as ticks:
        await ticks(4)
    assert server.ticks == [101, 102, 103, 104]


async def test_a_pod_that_is_new_is_told_at_its_first_tick() -> None:
    measured, server = Measured(), Server()
    async with publishing(measured, server, resolution=3600) as ticks:
        await ticks(2)
        measured.news = True
        await ticks(1)
        measured.news = False
        await ticks(2)
    assert server.ticks == [101, 103]


async def test_nonsense_from_a_server_is_a_reason_to_try_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    measured, server = Measured(), Server()
    server.answers = [Reply(200, {}, b"<html>"), Reply(200, {}, b"<html>"), OK]
    async with publishing(measured, server, resolution=10) as ticks:
        await ticks(3)
    assert server.ticks == [101, 102, 103]
    assert len([each for each in caplog.records if "could not be" in each.message]) == 1
