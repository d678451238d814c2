import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from kedge.client.http import HttpTransport
from kedge.client.transport import Call, Unreachable

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(serve: Serve) -> AsyncIterator[HttpTransport]:
    async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    listener = await asyncio.start_server(closing, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    transport = HttpTransport(f"http://127.0.0.1:{port}", token="secret")
    try:
        yield transport
    finally:
        await transport.close()
        listener.close()
        await listener.wait_closed()


async def test_the_token_goes_with_every_request_and_the_connection_is_kept() -> None:
    heads: list[list[str]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests: list[str] = []
        heads.append(requests)
        while not reader.at_eof():
            try:
                requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
            except asyncio.IncompleteReadError:
                return
            writer.write(HELLO)

    async with server(serve) as transport:
        for _ in range(2):
            assert (await transport.send(Call("GET", "/x", "a=b"))).body == b"hello"
    assert len(heads) == 1
    assert [head.splitlines()[0] for head in heads[0]] == ["GET /x?a=b HTTP/1.1"] * 2
    assert all("authorization: Bearer secret" in head for head in heads[0])


async def test_a_read_is_sent_again_if_the_kept_connection_turns_out_to_be_closed() -> None:
    connections = 0

    async def one_each(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HELLO)
        # The second request arrives, and finds the door shut.
        await reader.read(1) if connections == 1 else None

    async with server(one_each) as transport:
        assert (await transport.send(Call("GET", "/"))).body == b"hello"
        assert (await transport.send(Call("GET", "/"))).body == b"hello"
    assert connections == 2


async def test_a_write_is_never_sent_twice() -> None:
    requests = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        await reader.readuntil(b"\r\n\r\n")
        requests += 1
        writer.write(HELLO)
        await reader.readuntil(b"\r\n\r\n")
        requests += 1

    async with server(serve) as transport:
        await transport.send(Call("POST", "/"))
        with pytest.raises(Unreachable):
            await transport.send(Call("POST", "/"))
    assert requests == 2


async def test_an_answer_that_breaks_off_is_an_error_after_what_has_come() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")

    async with server(serve) as transport, transport.stream(Call("GET", "/")) as stream:
        assert await anext(stream.pieces) == b"abc"
        with pytest.raises(Unreachable):
            await anext(stream.pieces)


async def test_nobody_listening_is_unreachable() -> None:
    listener = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    listener.close()
    await listener.wait_closed()
    with pytest.raises(Unreachable, match="cannot connect"):
        await HttpTransport(f"http://127.0.0.1:{port}").send(Call("GET", "/"))


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="not the address"):
        HttpTransport("127.0.0.1:6443")
