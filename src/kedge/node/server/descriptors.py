"""Non-blocking reading and writing of pipes and terminals."""

import asyncio
import errno
import os
from collections.abc import AsyncGenerator, Callable
from typing import Final

_CHUNK: Final = 64 << 10


async def chunks(descriptor: int) -> AsyncGenerator[bytes, None]:
    """Yield the data of a descriptor until its end."""
    os.set_blocking(descriptor, False)
    loop = asyncio.get_running_loop()
    while True:
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            await _ready(descriptor, loop.add_reader, loop.remove_reader)
            continue
        except OSError as error:
            # A terminal whose other side is closed returns an error instead of its end.
            if error.errno != errno.EIO:
                raise
            data = b""
        if not data:
            return
        yield data


async def write(descriptor: int, data: bytes) -> None:
    """Write all data. Raises BrokenPipeError if the reader is gone."""
    os.set_blocking(descriptor, False)
    loop = asyncio.get_running_loop()
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            await _ready(descriptor, loop.add_writer, loop.remove_writer)


async def _ready(
    descriptor: int,
    add: Callable[..., object],
    remove: Callable[[int], object],
) -> None:
    ready = asyncio.get_running_loop().create_future()
    add(descriptor, _resolve, ready)
    try:
        await ready
    finally:
        remove(descriptor)


def _resolve(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)
