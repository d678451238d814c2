"""Tunnel: bytes copied between two connections, both ways, until both have ended."""

import asyncio
import contextlib

from kedge.web.duplex import ByteStream


async def join(one: ByteStream, other: ByteStream) -> None:
    """Let two peers speak with each other. The end of what one says is passed on; when both have
    ended, or either has gone, both connections are closed."""
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_copy(one, other))
            tasks.create_task(_copy(other, one))
    finally:
        one.close()
        other.close()


async def _copy(source: ByteStream, target: ByteStream) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read():
            target.write(data)
            await target.drain()
    target.write_eof()
