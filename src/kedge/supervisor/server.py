"""The door to the supervisor: connections of node agents, their requests, and the answers."""

import contextlib
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from kedge.supervisor import wire
from kedge.supervisor.loop import READABLE, WRITABLE, Loop

Document = dict[str, Any]
Handler = Callable[["Call"], None]

_MOST_WAITING: Final = 4096
"""Messages that nobody takes, before the connection is given up."""


class Missing(Exception):
    """There is no such sandbox, container or command."""


class Failure(Exception):
    """It cannot be done; the text is for the user."""


class Call:
    """One request that must be answered, now or later."""

    def __init__(self, connection: "Connection", message: Document) -> None:
        self.connection = connection
        self.message = message

    def answer(self, result: Document | None = None, descriptors: Sequence[int] = ()) -> None:
        """The descriptors are closed here once they are sent."""
        self.connection.send({"id": self.message["id"], "result": result or {}}, descriptors)

    def refuse(self, error: Exception) -> None:
        kind = "missing" if isinstance(error, Missing) else "failure"
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        self.connection.send({"id": self.message["id"], "error": text, "kind": kind})

    def attempt(self, deed: Callable[[], None]) -> None:
        """Do something that may fail in the ways that users are told of. Whatever else it raises
        is a bug, but nobody is to wait for ever because of it."""
        try:
            deed()
        except (Missing, Failure, OSError) as error:
            self.refuse(error)
        except Exception as error:
            self.refuse(Failure(f"the supervisor failed: {type(error).__name__}: {error}"))
            raise


class Connection:
    """A node agent that is connected."""

    def __init__(self, connected: socket.socket, loop: Loop, door: "Door") -> None:
        self._socket = connected
        self._loop = loop
        self._door = door
        self._waiting: deque[tuple[bytes, list[int]]] = deque()
        self.watching = False
        self.open = True
        connected.setblocking(False)
        self._listen()

    def _listen(self) -> None:
        events = READABLE | (WRITABLE if self._waiting else 0)
        self._loop.on(self._socket.fileno(), events, self._ready)

    def _ready(self) -> None:
        if self._waiting:
            self._flush()
        while self.open:
            try:
                message, descriptors = wire.take(self._socket)
            except BlockingIOError:
                return
            except (wire.Closed, OSError, ValueError):
                self.close()
                return
            for descriptor in descriptors:
                os.close(descriptor)
            self._door.handle(Call(self, message))

    def send(self, message: Document, descriptors: Sequence[int] = ()) -> None:
        if not self.open:
            _close(descriptors)
            return
        content, sent = wire.packet(message, descriptors)
        self._waiting.append((content, sent))
        if len(self._waiting) > _MOST_WAITING:
            self.close()
        elif len(self._waiting) == 1:
            self._flush()

    def _flush(self) -> None:
        while self._waiting:
            content, descriptors = self._waiting[0]
            try:
                wire.post(self._socket, content, descriptors)
            except BlockingIOError:
                break
            except OSError:
                self.close()
                return
            self._waiting.popleft()
            _close(descriptors)
        self._listen()

    def close(self) -> None:
        if not self.open:
            return
        self.open = False
        for _, descriptors in self._waiting:
            _close(descriptors)
        self._waiting.clear()
        self._loop.off(self._socket.fileno())
        self._socket.close()
        self._door.left(self)


class Door:
    """Listens, and hands requests to those who know how to do them."""

    def __init__(self, directory: str, loop: Loop, handlers: dict[str, Handler]) -> None:
        self._loop = loop
        self._handlers = handlers
        self._directory = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self.connections: list[Connection] = []
        self.on_left: Callable[[Connection], None] = lambda _: None
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = wire.address(self._directory)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        before = os.umask(0o177)
        self._listener.bind(path)
        os.umask(before)
        self._listener.listen(64)
        self._listener.setblocking(False)
        loop.on(self._listener.fileno(), READABLE, self._accept)

    def close(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(wire.address(self._directory))
        self._loop.off(self._listener.fileno())
        self._listener.close()

    def tell(self, event: Document) -> None:
        """Everybody who watches."""
        for connection in list(self.connections):
            if connection.watching:
                connection.send({"event": event})

    def handle(self, call: Call) -> None:
        handler = self._handlers.get(call.message.get("do", ""))
        if handler is None:
            call.refuse(Failure(f"the supervisor does not know how to {call.message.get('do')}"))
            return
        call.attempt(lambda: handler(call))

    def left(self, connection: Connection) -> None:
        self.connections.remove(connection)
        self.on_left(connection)

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:
                # Out of descriptors, for the moment: who waits is seen again.
                return
            if _peer(connected) in (0, os.geteuid()):
                self.connections.append(Connection(connected, self._loop, self))
            else:
                connected.close()


def _peer(connected: socket.socket) -> int:
    """The user at the other end."""
    size = struct.calcsize("3i")
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return int(struct.unpack("3i", credentials)[1])


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
