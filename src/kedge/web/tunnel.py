"""Tunnel: bytes copied between two connections, both ways, until both have ended."""

import asyncio
import contextlib
from typing import Final
from weakref import WeakKeyDictionary

from kedge.machinery.clock import SystemClock
from kedge.machinery.turns import Turns
from kedge.web.duplex import ByteStream

SHARE_SECONDS: Final = 0.005
"""How long all streams together may pass bytes on in one turn of the event loop."""
_TURNS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Turns]] = WeakKeyDictionary()


async def take_turn() -> None:
    """Wait for a turn of the event loop in which streams have time. Peers that send and read as
    fast as they can never make a stream wait, and there may be hundreds of them."""
    loop = asyncio.get_running_loop()
    turns = _TURNS.get(loop)
    if turns is None:
        turns = _TURNS[loop] = Turns(SystemClock().monotonic, share_seconds=SHARE_SECONDS)
    await turns.give_way()


async def join(one: ByteStream, other: ByteStream) -> None:
    """Let two peers speak with each other. The end of what one says is passed on; when both have
    ended, or either has gone, both connections are closed."""
    from kedge.machinery.task_group import TaskGroup

    try:
        async with TaskGroup() as tasks:
            tasks.create_task(_copy(one, other))
            tasks.create_task(_copy(other, one))
    finally:
        one.close()
        other.close()


async def _copy(source: ByteStream, target: ByteStream) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read():
            await take_turn()
            target.write(data)
            await target.drain()
    target.write_eof()
