"""The clock of a node, together with that of its server."""

import asyncio
from collections.abc import Sequence

import msgspec

from kedge.api.testing.clock_course import ClockCourse
from kedge.client.client import Client
from kedge.client.clock_follower import ClockFollower
from kedge.client.transport import Call, LocalTransport
from kedge.machinery.errors import StatusError
from kedge.machinery.travel_clock import ClockStretch, TravelClock
from kedge.testing.clock import FakeClock
from kedge.web.message import Response


class Server:
    """Answers with one course after the other, and then never again."""

    def __init__(self, answers: Sequence[Response]) -> None:
        self.answers = list(answers)
        self.versions: list[str] = []

    async def handle(self, call: Call) -> Response:
        assert call.path == "/testing/clock/course"
        self.versions.append(call.query.partition("=")[2])
        if not self.answers:
            await asyncio.get_running_loop().create_future()
        return self.answers.pop(0)

    def follower(self, clock: TravelClock) -> ClockFollower:
        return ClockFollower(Client(LocalTransport(self.handle)), clock)


def course(version: str, ahead: float) -> Response:
    answer = ClockCourse(version=version, stretches=[ClockStretch(0.0, ahead)])
    return Response(200, msgspec.json.encode(answer))


async def test_a_node_renews_its_lease_before_it_asks_again() -> None:
    machine = FakeClock()
    clock, seen = TravelClock(machine), list[float]()
    server = Server([course("x-0", 5), course("x-0", 5), course("x-1", 60)])
    follower = server.follower(clock)
    assert await follower.learn()
    assert clock.reading.offset == 5

    async def renew() -> None:
        seen.append(clock.reading.offset)
        assert len(server.versions) == 3
        raise StatusError(409, "Conflict", "on purpose")

    async with asyncio.TaskGroup() as group:
        task = group.create_task(follower.run(renew))
        await machine.advance(0)
        await machine.advance(0)
        assert (seen, server.versions) == ([60], ["", "x-0", "x-0", "x-1"])
        task.cancel()


async def test_a_server_that_is_not_for_tests() -> None:
    clock = TravelClock(FakeClock())
    assert not await Server([Response(404, b"404 page not found")]).follower(clock).learn()
    assert clock.reading.offset == 0


async def test_a_server_that_does_not_answer_is_asked_again() -> None:
    machine = FakeClock()
    server = Server([Response(503, b"{}"), course("x-0", 7), Response(503, b"{}")])
    clock = TravelClock(machine)
    follower = server.follower(clock)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(follower.learn())
        await machine.advance(1)
        assert await task
        running = group.create_task(follower.run(FakeClock().give_way))
        await machine.advance(1)
        assert len(server.versions) == 4
        running.cancel()
