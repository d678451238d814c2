"""Clients of remote commands, in every version of every protocol."""

import asyncio
import base64
from collections.abc import Mapping

import msgspec
import pytest

from kedge.machinery.errors import StatusError
from kedge.node.server import status
from kedge.node.server.remote import (
    SPDY_VERSIONS,
    VERSIONS,
    NoCommonVersion,
    RemoteChannel,
    SpdyClient,
    StreamOptions,
    WebSocketClient,
    answer,
    negotiated,
    spdy_version,
)
from kedge.testing.streams import MemoryStream, pair
from kedge.web import spdy, websocket
from kedge.web.message import HttpRequest, Query
from kedge.web.websocket import WebSocket

ALL = StreamOptions(stdin=True, stdout=True, stderr=True, tty=False)
FAILED = status.ended(["sh"], 3)


def asking(**headers: str) -> HttpRequest:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpRequest("GET", "/exec/n/p/c", "", given)


def for_websocket(protocols: str = "") -> HttpRequest:
    return asking(
        connection="Upgrade",
        upgrade="websocket",
        sec_websocket_version="13",
        sec_websocket_key=websocket.new_key(),
        sec_websocket_protocol=protocols,
    )


def test_streams_are_read_from_the_query() -> None:
    assert StreamOptions.read(Query("input=1&output=1&error=1")) == ALL
    # A terminal has no error stream of its own.
    assert StreamOptions.read(Query("output=1&error=1&tty=1")).stderr is False
    with pytest.raises(StatusError, match="at least 1 of stdin, stdout, stderr"):
        StreamOptions.read(Query("tty=1"))


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ("v5.channel.k8s.io", "v5.channel.k8s.io"),
        ("v9.channel.k8s.io, v4.channel.k8s.io", "v4.channel.k8s.io"),
        ("base64.channel.k8s.io", "base64.channel.k8s.io"),
        ("", ""),
    ],
)
def test_the_first_version_that_both_speak_is_chosen(offered: str, chosen: str) -> None:
    assert negotiated(for_websocket(offered), VERSIONS) == chosen


def test_a_client_with_which_nothing_is_in_common_is_refused() -> None:
    with pytest.raises(StatusError) as caught:
        negotiated(for_websocket("v9.channel.k8s.io"), VERSIONS)
    assert caught.value.code == 403
    with pytest.raises(NoCommonVersion) as none:
        spdy_version(asking(x_stream_protocol_version="v9"), SPDY_VERSIONS)
    response = none.value.response()
    assert response.status == 403
    assert ("X-Accepted-Stream-Protocol-Versions", "v4.channel.k8s.io") in response.headers


def test_a_request_that_wants_no_other_protocol_is_refused() -> None:
    async def never(client: object) -> None:
        raise AssertionError

    with pytest.raises(StatusError, match="Upgrade request required"):
        answer(asking(), ALL, never)


class Taken:
    """Remembers what a client sent."""

    def __init__(self) -> None:
        self.seen: list[tuple[RemoteChannel, bytes]] = []
        self._more = asyncio.Event()

    async def __call__(self, channel: RemoteChannel, data: bytes) -> None:
        self.seen.append((channel, data))
        self._more.set()

    async def count(self, number: int) -> None:
        """Return when so much has come."""
        while len(self.seen) < number:
            self._more.clear()
            await self._more.wait()


def connected(version: str) -> tuple[WebSocket, WebSocketClient]:
    near, far = pair()
    return WebSocket(near, client=True), WebSocketClient(WebSocket(far), VERSIONS[version])


async def test_binary_messages_begin_with_their_channel() -> None:
    far, client = connected("v5.channel.k8s.io")
    far.send(b"\x00typed")
    far.send(b'\x04{"Width":80,"Height":24}\n')
    far.send(b"\x00")  # says nothing
    far.send(b"\x07unknown")
    far.send(b"\x00as text", text=True)  # as PyPI's client sends it
    far.send(b"\xff\x00")
    far.say_goodbye(websocket.CloseCode.NORMAL)
    taken = Taken()
    await client.listen(taken)
    assert taken.seen == [
        (RemoteChannel.STDIN, b"typed"),
        (RemoteChannel.RESIZE, b'{"Width":80,"Height":24}\n'),
        (RemoteChannel.STDIN, b"as text"),
        (RemoteChannel.STDIN, b""),
    ]


async def test_before_version_five_there_is_no_end_of_input() -> None:
    far, client = connected("v4.channel.k8s.io")
    far.send(b"\xff\x00")
    far.say_goodbye(websocket.CloseCode.NORMAL)
    taken = Taken()
    await client.listen(taken)
    assert taken.seen == []


async def test_base64_is_text_both_ways() -> None:
    far, client = connected("base64.channel.k8s.io")
    far.send(b"0" + base64.b64encode(b"typed"), text=True)
    far.send(b"0%%%", text=True)
    far.say_goodbye(websocket.CloseCode.NORMAL)
    taken = Taken()
    await client.listen(taken)
    assert taken.seen[0] == (RemoteChannel.STDIN, b"typed")
    far, client = connected("base64.channel.k8s.io")
    client.send(RemoteChannel.STDOUT, b"said")
    assert await far.receive() == b"1" + base64.b64encode(b"said")


async def ended(version: str, outcome: status.Status) -> list[bytes]:
    far, client = connected(version)
    ending = asyncio.ensure_future(client.end(outcome))
    messages = []
    while (message := await far.receive()) is not None:
        messages.append(message)
    await ending
    assert far.close_code == websocket.CloseCode.NORMAL
    return messages


async def test_new_clients_are_told_of_the_end_in_a_document() -> None:
    for version in ("v4.channel.k8s.io", "v5.channel.k8s.io"):
        [message] = await ended(version, status.SUCCESS)
        assert message == b'\x03{"metadata":{},"status":"Success"}'
        [message] = await ended(version, FAILED)
        told = msgspec.json.decode(message[1:])
        assert told["reason"] == "NonZeroExitCode"
        assert told["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]


async def test_old_clients_are_told_of_failures_only_and_in_words() -> None:
    for version in ("", "channel.k8s.io"):
        assert await ended(version, status.SUCCESS) == []
        [message] = await ended(version, FAILED)
        assert message.startswith(b"\x03command terminated with non-zero exit code")


async def test_a_client_is_greeted_on_its_lowest_output() -> None:
    far, client = connected("v5.channel.k8s.io")
    client.greet(ALL)
    assert await far.receive() == b"\x01"
    client.greet(StreamOptions(stdin=True, stdout=False, stderr=False, tty=False))
    assert await far.receive() == b"\x03"


# SPDY.


async def over_spdy(
    near: MemoryStream, far: MemoryStream, channels: Mapping[int, RemoteChannel]
) -> tuple[spdy.SpdyConnection, SpdyClient, "asyncio.Task[None]"]:
    framer = spdy.SpdyFramer()
    for number, channel in channels.items():
        near.write(framer.syn_stream(number, {"streamtype": channel.name.lower()}))
    connection = spdy.SpdyConnection(far)
    running = asyncio.get_running_loop().create_task(connection.run())
    opened = connection.opened()
    streams = {channel: await anext(opened) for channel in channels.values()}
    return connection, SpdyClient(connection, streams, documents=True), running


CHANNELS = {
    1: RemoteChannel.ERROR,
    3: RemoteChannel.STDIN,
    5: RemoteChannel.STDOUT,
    7: RemoteChannel.RESIZE,
}


async def test_every_channel_is_a_stream_of_its_own() -> None:
    near, far = pair()
    _, client, running = await over_spdy(near, far, CHANNELS)
    near.write(spdy.data(3, b"typed", final=True) + spdy.data(7, b'{"Width":1,"Height":2}'))
    taken = Taken()
    listening = asyncio.ensure_future(client.listen(taken))
    async with asyncio.timeout(10):
        await taken.count(3)
    listening.cancel()
    client.send(RemoteChannel.STDOUT, b"said")
    client.send(RemoteChannel.STDERR, b"to nobody")
    ending = asyncio.ensure_future(client.end(FAILED))
    events: list[spdy.Event] = []
    parser = spdy.SpdyParser()
    while spdy.GoAway() not in events:
        parser.add(await near.read())
        while not parser.is_exhausted:
            events += parser.take(100)
    assert events[0] == spdy.DataFrame(5, b"said", False)
    error = next(e.content for e in events if isinstance(e, spdy.DataFrame) and e.stream == 1)
    assert msgspec.json.decode(error) == FAILED
    assert {e.stream for e in events if isinstance(e, spdy.DataFrame) and e.final} == set(CHANNELS)
    near.close()
    await ending
    await running
    assert (RemoteChannel.STDIN, b"typed") in taken.seen
    assert (RemoteChannel.STDIN, b"") in taken.seen
    assert (RemoteChannel.RESIZE, b'{"Width":1,"Height":2}') in taken.seen


async def test_a_client_that_has_gone_is_listened_to_no_longer() -> None:
    near, far = pair()
    _, client, running = await over_spdy(near, far, CHANNELS)
    listening = asyncio.ensure_future(client.listen(Taken()))
    near.close()
    async with asyncio.timeout(10):
        await listening
        await running
