"""Exec and attach: connects a command or a container to a remote client."""

import asyncio
import contextlib
import os
from collections.abc import Sequence
from contextlib import aclosing
from typing import Final

import msgspec

from kedge.node.runtime.runtime import ContainerStream, NotFoundError, Runtime, RuntimeFailure
from kedge.node.server import descriptors, status
from kedge.node.server.remote import RemoteChannel, RemoteClient, StreamOptions

_MOST_SIZE: Final = 4096
"""Bytes of one message with the size of a terminal."""
_LARGEST: Final = (1 << 16) - 1
_END_SECONDS: Final = 2.0
"""Seconds that a container may outlive its output while a client is attached."""


async def execute(
    runtime: Runtime,
    container: str,
    command: Sequence[str],
    wanted: StreamOptions,
    client: RemoteClient,
) -> None:
    """Run a command for a client. The command ends if the client disconnects."""
    try:
        stream = await runtime.exec_stream(container, command, tty=wanted.tty, stdin=wanted.stdin)
    except (RuntimeFailure, NotFoundError, OSError) as error:
        await client.end(status.failed(f"error executing command in container: {error}"))
        return
    try:
        exit_code = await copy_streams(stream, wanted, client)
    except (RuntimeFailure, NotFoundError, OSError) as error:
        await client.end(status.failed(f"error executing command in container: {error}"))
    else:
        if exit_code is not None:
            await client.end(status.ended(command, exit_code))
    finally:
        await stream.close()


async def attach(
    runtime: Runtime, container: str, wanted: StreamOptions, client: RemoteClient
) -> None:
    """Connect a client to the streams of a container until one of them ends."""
    try:
        stream = await runtime.attach(container, stdin=wanted.stdin)
    except (RuntimeFailure, NotFoundError, OSError) as error:
        await client.end(status.failed(f"error attaching to container: {error}"))
        return
    try:
        if await copy_streams(stream, wanted, client, _END_SECONDS) is not None:
            await client.end(status.SUCCESS)
    except TimeoutError:
        why = "its output has ended, or the client was too slow"
        await client.end(status.failed(f"error attaching to container: {why}"))
    except (RuntimeFailure, NotFoundError, OSError) as error:
        await client.end(status.failed(f"error attaching to container: {error}"))
    finally:
        await stream.close()


async def copy_streams(
    stream: ContainerStream,
    wanted: StreamOptions,
    client: RemoteClient,
    patience: float | None = None,
) -> int | None:
    """Copy data between the two; return the exit code, or None if the client has disconnected.
    Raises TimeoutError if there is no exit code that many seconds after the last output."""
    ear = _ClientInput(stream, wanted)
    # This function owns both tasks: it ends the one when the other is done.
    loop = asyncio.get_running_loop()
    speaking = loop.create_task(_speak(stream, wanted, client, patience))
    listening = loop.create_task(client.listen(ear.take))
    try:
        await asyncio.wait({speaking, listening}, return_when=asyncio.FIRST_COMPLETED)
        if not speaking.done():
            listening.result()
            return None
        try:
            return speaking.result()
        except ConnectionError:
            return None
    finally:
        await _cancel(speaking, listening)


async def _cancel(*tasks: "asyncio.Task[object]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _speak(
    stream: ContainerStream, wanted: StreamOptions, client: RemoteClient, patience: float | None
) -> int:
    loop = asyncio.get_running_loop()
    outputs = [
        loop.create_task(_copy(descriptor, channel if asked else None, client))
        for descriptor, channel, asked in (
            (stream.stdout, RemoteChannel.STDOUT, wanted.stdout),
            (stream.stderr, RemoteChannel.STDERR, wanted.stderr),
        )
        if descriptor >= 0
    ]
    try:
        # The exit status is sent after the last output.
        await asyncio.gather(*outputs)
    finally:
        # If one fails, the others end too. The descriptors are closed next, and their numbers used
        # again: one that goes on would read what belongs to another session.
        await _cancel(*outputs)
    async with asyncio.timeout(patience):
        return await stream.wait()


async def _copy(descriptor: int, channel: RemoteChannel | None, client: RemoteClient) -> None:
    """Read and discard output that the client did not request; otherwise the program would
    block."""
    async with aclosing(descriptors.chunks(descriptor)) as chunks:
        async for data in chunks:
            if channel is not None:
                client.send(channel, data)
                await client.drain()


class _ClientInput:
    """Writes the client's input to the command."""

    def __init__(self, stream: ContainerStream, wanted: StreamOptions) -> None:
        self._stream = stream
        self._open = wanted.stdin and stream.stdin >= 0
        self._sizes = TerminalSizes()

    async def take(self, channel: RemoteChannel, data: bytes) -> None:
        if channel is RemoteChannel.RESIZE:
            for width, height in self._sizes.feed(data):
                with contextlib.suppress(RuntimeFailure, NotFoundError, OSError):
                    await self._stream.resize(width, height)
        elif self._open:
            await self._hear(data)

    async def _hear(self, data: bytes) -> None:
        if not data:
            self._end()
            return
        try:
            await descriptors.write(self._stream.stdin, data)
        except OSError:
            # The program has closed its input or ended; further input is dropped.
            self._end()

    def _end(self) -> None:
        self._open = False
        stream = self._stream
        # A terminal has one descriptor for both directions; only a key can end its input.
        if stream.stdin >= 0 and stream.stdin != stream.stdout:
            descriptor, stream.stdin = stream.stdin, -1
            os.close(descriptor)


class _TerminalSize(msgspec.Struct, rename="pascal"):
    width: int = 0
    height: int = 0


class TerminalSizes:
    """Reads terminal sizes from a stream of JSON objects, which may arrive in parts."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[tuple[int, int]]:
        *complete, self._rest = (self._rest + data).split(b"}")
        self._rest = self._rest[-_MOST_SIZE:]
        found = []
        for each in complete:
            with contextlib.suppress(msgspec.MsgspecError):
                size = msgspec.json.decode(each + b"}", type=_TerminalSize)
                if 0 < size.width <= _LARGEST and 0 < size.height <= _LARGEST:
                    found.append((size.width, size.height))
        return found
