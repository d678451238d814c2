"""A Unix socket whose gRPC server starts with the first connection.

Most nodes never have a device plugin, and the gRPC library is a fifth of the agent's memory.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kedge.deviceplugin import library, methods
from kedge.deviceplugin.sockets import reachable

log = logging.getLogger(__name__)

Handlers = dict[methods.Method[Any, Any], methods.Handler]
_CHUNK = 65536


class GrpcSocket:
    """A socket that serves some gRPC methods. The owner must `run` it."""

    def __init__(self, path: Path, behind: Path, handlers: Callable[[], Handlers]) -> None:
        self._path = path
        self._behind = behind
        """The socket of the gRPC server itself."""
        self._handlers = handlers
        self._opening = asyncio.Lock()
        self._server: Any = None
        self.open = asyncio.Event()
        """Set once clients can connect."""

    async def run(self) -> None:
        """Run until cancelled. Raises OSError if the socket cannot be created."""
        where, held = reachable(self._path)
        self._path.unlink(missing_ok=True)
        try:
            server = await asyncio.start_unix_server(self._visit, where)
            self._path.chmod(0o600)
            self.open.set()
            async with server:
                await server.serve_forever()
        finally:
            held.close()
            self._path.unlink(missing_ok=True)
            if self._server is not None:
                await self._server.stop(0)
            self._behind.unlink(missing_ok=True)

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await self._lead_in()
        except OSError as error:
            log.warning("cannot serve gRPC socket=%s error=%r", self._path, str(error))
            writer.close()
            return
        with contextlib.suppress(ConnectionError, BrokenPipeError):
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_pump(reader, inner_writer))
                tasks.create_task(_pump(inner_reader, writer))

    async def _lead_in(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        where, held = reachable(self._behind)
        try:
            async with self._opening:
                if self._server is None:
                    self._server = await self._begin(where)
            return await asyncio.open_unix_connection(where)
        finally:
            held.close()

    async def _begin(self, where: str) -> Any:
        grpc = await asyncio.to_thread(library.load)
        self._behind.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._behind.unlink(missing_ok=True)
        server = grpc.aio.server()
        methods.offer(grpc, server, self._handlers())
        server.add_insecure_port(f"unix:{where}")
        await server.start()
        return server


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    except (ConnectionError, OSError):
        pass
    finally:
        writer.close()
