from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from kedge.client.failover import FailoverTransport
from kedge.client.http import HttpTransport, NotConnected
from kedge.client.transport import Call, Reply, Stream, Unreachable

GET = Call("GET", "/")


class OneServer:
    """A server that answers, refuses connections, breaks them, or is not available."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.fault: Exception | None = None
        self.status = 200
        self.asked = 0
        self.is_closed = False

    async def send(self, call: Call) -> Reply:
        self.asked += 1
        if self.fault is not None:
            raise self.fault
        return Reply(self.status, {}, self.name.encode())

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[Stream]:
        reply = await self.send(call)
        yield Stream(reply.status, {}, cast("Any", reply.body))

    async def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def servers() -> list[OneServer]:
    return [OneServer(name) for name in "abc"]


@pytest.fixture
def transport(servers: list[OneServer]) -> FailoverTransport:
    return FailoverTransport(cast("list[HttpTransport]", servers))


async def answered_by(transport: FailoverTransport) -> str:
    return (await transport.send(GET)).body.decode()


async def test_requests_stay_with_a_server_that_answers(
    transport: FailoverTransport, servers: list[OneServer]
) -> None:
    assert [await answered_by(transport) for _ in range(3)] == ["a", "a", "a"]
    assert servers[1].asked == 0


async def test_a_server_that_cannot_be_connected_to_is_left_within_the_request(
    transport: FailoverTransport, servers: list[OneServer]
) -> None:
    servers[0].fault = servers[1].fault = NotConnected("refused")
    assert await answered_by(transport) == "c"
    assert await answered_by(transport) == "c"
    assert servers[0].asked == 1


async def test_a_request_whose_connection_broke_is_not_repeated(
    transport: FailoverTransport, servers: list[OneServer]
) -> None:
    servers[0].fault = Unreachable("reset")
    with pytest.raises(Unreachable):
        await transport.send(GET)
    assert servers[1].asked == 0
    assert await answered_by(transport) == "b"


async def test_a_server_that_is_not_available_is_left(
    transport: FailoverTransport, servers: list[OneServer]
) -> None:
    servers[0].status = 503
    assert (await transport.send(GET)).status == 503
    assert await answered_by(transport) == "b"


async def test_without_any_server_the_last_failure_is_raised(
    transport: FailoverTransport, servers: list[OneServer]
) -> None:
    for server in servers:
        server.fault = NotConnected(server.name)
    with pytest.raises(NotConnected, match="c"):
        await transport.send(GET)
    servers[0].fault = None
    assert await answered_by(transport) == "a"


async def test_a_watch_goes_on_with_the_next_server(
    transport: FailoverTransport, servers: list[OneServer]
) -> None:
    with pytest.raises(Unreachable):
        async with transport.stream(GET):
            raise Unreachable("broken")
    servers[1].fault = NotConnected("refused")
    async with transport.stream(GET) as stream:
        assert cast("Any", stream.pieces) == b"c"


async def test_all_connections_are_closed(
    transport: FailoverTransport, servers: list[OneServer]
) -> None:
    await transport.close()
    assert all(server.is_closed for server in servers)
