"""Ports of a pod, forwarded over SPDY and over channels of a WebSocket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing

import pytest

from kedge.machinery.errors import StatusError
from kedge.node.server import ports
from kedge.testing.clock import FakeClock
from kedge.testing.streams import StreamingRuntime, pair
from kedge.web import spdy, websocket
from kedge.web.message import HttpRequest, Query
from kedge.web.websocket import WebSocket

PATIENCE = 60


@pytest.fixture
async def pod() -> AsyncIterator[ports.PortForwardTarget]:
    """Port 80 shouts back what it hears, then says goodbye; nobody listens on others."""

    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            while data := await reader.read(65_536):
                writer.write(data.upper())
                await writer.drain()
            writer.write(b"BYE")

    server = await asyncio.start_server(shout, "127.0.0.1", 0)
    runtime = StreamingRuntime(FakeClock())
    runtime.ports[80] = server.sockets[0].getsockname()
    async with server:
        yield ports.PortForwardTarget("p", "u", lambda port: runtime.dial("s", port))


class Client:
    """Somebody who forwards ports as kubectl does."""

    def __init__(self) -> None:
        self.end, self.far = pair()
        self._framer = spdy.SpdyFramer()
        self._parser = spdy.SpdyParser()
        self.seen: list[spdy.Event] = []

    def open(self, error: int, port: int, request: str = "0") -> None:
        """Two streams for one connection."""
        for number, kind in ((error, "error"), (error + 2, "data")):
            headers = {"streamtype": kind, "port": str(port), "requestid": request}
            self.end.write(self._framer.syn_stream(number, headers))
        self.end.write(spdy.data(error, b"", final=True))

    async def until(self, event: spdy.Event) -> None:
        async with asyncio.timeout(PATIENCE):
            while event not in self.seen:
                self._parser.add(await self.end.read())
                while not self._parser.is_exhausted:
                    self.seen += self._parser.take(100)

    def received(self, stream: int) -> bytes:
        found = (
            e.content for e in self.seen if isinstance(e, spdy.DataFrame) and e.stream == stream
        )
        return b"".join(found)


async def test_connections_share_one_and_end_one_by_one(pod: ports.PortForwardTarget) -> None:
    client = Client()
    serving = asyncio.ensure_future(ports.forward(client.far, pod))
    client.open(1, 80, "0")
    client.open(5, 80, "1")
    await client.until(spdy.SynReply(7, False))
    client.end.write(spdy.data(3, b"first") + spdy.data(7, b"second", final=True))
    await client.until(spdy.DataFrame(7, b"", True))
    assert client.received(7) == b"SECONDBYE"
    client.end.write(spdy.data(3, b" again", final=True))
    await client.until(spdy.DataFrame(3, b"", True))
    assert client.received(3) == b"FIRST AGAINBYE"
    # The streams for errors end without a word.
    await client.until(spdy.DataFrame(1, b"", True))
    assert client.received(1) == b""
    client.end.close()
    await serving


async def test_a_port_nobody_listens_on_is_told_on_the_stream_for_errors(
    pod: ports.PortForwardTarget,
) -> None:
    client = Client()
    serving = asyncio.ensure_future(ports.forward(client.far, pod))
    client.open(1, 81)
    await client.until(spdy.DataFrame(1, b"", True))
    assert client.received(1).decode() == (
        "error forwarding port 81 to pod p, uid u: "
        "failed to connect to localhost:81 inside the pod: Connection refused"
    )
    await client.until(spdy.RstStream(3, spdy.ResetCode.CANCEL))
    client.open(5, 80, "1")  # the connection as a whole goes on
    await client.until(spdy.SynReply(7, False))
    client.end.close()
    await serving


async def test_streams_that_say_no_port_are_refused(pod: ports.PortForwardTarget) -> None:
    client = Client()
    serving = asyncio.ensure_future(ports.forward(client.far, pod))
    client.open(1, 0)
    await client.until(spdy.RstStream(1, spdy.ResetCode.PROTOCOL_ERROR))
    client.end.close()
    await serving


async def test_a_client_that_leaves_ends_its_connections(pod: ports.PortForwardTarget) -> None:
    client = Client()
    serving = asyncio.ensure_future(ports.forward(client.far, pod))
    client.open(1, 80)
    await client.until(spdy.SynReply(3, False))
    client.end.write(spdy.data(3, b"hello"))
    await client.until(spdy.DataFrame(3, b"HELLO", False))
    client.end.close()
    async with asyncio.timeout(PATIENCE):
        await serving


async def test_ports_are_channels_for_other_clients(pod: ports.PortForwardTarget) -> None:
    near, far = pair()
    client = WebSocket(near, client=True)
    channels = ports.PortChannels(WebSocket(far), binary=True)
    serving = asyncio.ensure_future(channels.serve([80, 81], pod))
    async with asyncio.timeout(PATIENCE):
        greetings = [await client.receive() for _ in range(4)]
        assert greetings == [b"\0P\0", b"\1P\0", b"\2Q\0", b"\3Q\0"]
        client.send(b"\0hello")
        others = [await client.receive(), await client.receive()]
        assert b"\0HELLO" in others
        [error] = [other for other in others if other and other[0] == 3]
        assert error[1:].startswith(b"error forwarding port 81 to pod p")
        client.say_goodbye(websocket.CloseCode.NORMAL)
        await serving


def test_ports_are_read_from_the_query() -> None:
    assert ports.requested_ports(Query("ports=80&ports=81,82")) == [80, 81, 82]
    assert ports.requested_ports(Query("port=80")) == [80]
    for query in ("", "ports=0", "ports=x", "ports=70000", "ports="):
        with pytest.raises(StatusError) as caught:
            ports.requested_ports(Query(query))
        assert caught.value.code == 400


def test_a_tunnel_is_chosen_where_it_is_offered(pod: ports.PortForwardTarget) -> None:
    headers = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": websocket.new_key(),
    }

    def chosen(offered: str, query: str = "") -> str:
        asked = headers | {"sec-websocket-protocol": offered}
        response = ports.answer(HttpRequest("GET", "/", query, asked), pod)
        assert response.status == 101
        return dict(response.headers).get("Sec-WebSocket-Protocol", "")

    assert chosen("SPDY/3.1+portforward.k8s.io") == "SPDY/3.1+portforward.k8s.io"
    # PyPI's client offers the same for everything.
    assert chosen("v5.channel.k8s.io,v4.channel.k8s.io", "ports=80") == "v4.channel.k8s.io"
    assert chosen("", "ports=80") == ""
