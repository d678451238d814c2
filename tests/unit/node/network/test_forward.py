"""How many connections are handed on."""

import asyncio
import contextlib

from kedge.node.network import forward
from kedge.node.network.forward import ConnectionLimit
from kedge.node.network.network_place import MACHINE

PATIENCE = 60


def test_each_source_has_so_many_and_all_together_too() -> None:
    sources = ConnectionLimit(2, 3)
    with contextlib.ExitStack() as stack:
        welcome = [stack.enter_context(sources.connection(s)) for s in ("a", "a", "a", "b", "c")]
    assert welcome == [True, True, False, True, False]
    with sources.connection("a") as again:
        assert again


async def test_a_connection_too_many_is_closed_and_the_others_go_on() -> None:
    ended = asyncio.Event()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()
        await writer.wait_closed()
        ended.set()

    behind = await asyncio.start_server(echo, "127.0.0.1", 0)
    target = behind.sockets[0].getsockname()
    handed = forward._forwarder(lambda _: target, ConnectionLimit(1), MACHINE)
    over: list[asyncio.Task[None]] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        over.append(asyncio.current_task())  # type: ignore[arg-type]
        await handed(reader, writer)
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    front = await asyncio.start_server(handle, "127.0.0.1", 0)
    where = front.sockets[0].getsockname()
    async with behind, front, asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection(*where)
        writer.write(b"hello")
        assert await reader.read(5) == b"hello"
        other, too_many = await asyncio.open_connection(*where)
        with contextlib.suppress(ConnectionError):
            assert await other.read() == b""
        writer.write(b"still here")
        assert await reader.readexactly(10) == b"still here"
        for each in (writer, too_many):
            each.close()
            with contextlib.suppress(ConnectionError):
                await each.wait_closed()
        await ended.wait()
        await asyncio.wait(over)
