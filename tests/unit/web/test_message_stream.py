"""A stream as messages of a WebSocket."""

import asyncio
import socket

import pytest

from kedge.machinery.errors import StatusError
from kedge.web.duplex import Duplex, adopt
from kedge.web.message import HttpRequest, Response, Sink
from kedge.web.message_stream import in_messages
from kedge.web.websocket import WebSocket, new_key, offering


def asking(*protocols: str) -> HttpRequest:
    headers = {name.lower(): value for name, value in offering(new_key(), protocols)}
    return HttpRequest("GET", "/", headers=headers)


async def pair() -> tuple[Duplex, Duplex]:
    """Two ends of one connection."""
    here, there = socket.socketpair()
    return await adopt(here), await adopt(there)


async def taken_over(response: Response, duplex: Duplex) -> None:
    assert response.take_over is not None
    await response.take_over(duplex)


async def lines(sink: Sink) -> None:
    sink.write(b'{"a":1}\n{"b":2}\n')
    await sink.drain()
    sink.write(b'{"c":3}\n')


async def received(client: WebSocket) -> list[bytes]:
    found = []
    while (message := await client.receive()) is not None:
        found.append(message)
    return found


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        (True, [b'{"a":1}', b'{"b":2}', b'{"c":3}']),
        (False, [b'{"a":1}\n{"b":2}\n', b'{"c":3}\n']),
    ],
)
async def test_each_line_is_a_message(text: bool, messages: list[bytes]) -> None:
    response = in_messages(asking("events.kedge", "other"), lines, text=text)
    assert response.status == 101
    assert ("Sec-WebSocket-Protocol", "events.kedge") in response.headers
    server, client = await pair()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(taken_over(response, server))
        assert await received(WebSocket(client, client=True)) == messages
        client.close()


async def test_a_stream_ends_when_its_client_leaves() -> None:
    ended = asyncio.Event()

    async def endless(sink: Sink) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    response = in_messages(asking(), endless, text=True)
    server, client = await pair()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(taken_over(response, server))
        await WebSocket(client, client=True).close()
    assert ended.is_set()


def test_a_broken_request_is_refused() -> None:
    http = HttpRequest("GET", "/", headers={"connection": "Upgrade", "upgrade": "websocket"})
    with pytest.raises(StatusError) as refused:
        in_messages(http, lines, text=True)
    assert refused.value.code == 400
