"""The supervisor's socket: connections of node agents, their requests, and the answers."""

import contextlib
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from kedge.supervisor import wire
from kedge.supervisor.loop import READABLE, WRITABLE, EventLoop

Document = dict[str, Any]
Handler = Callable[["AgentRequest"], None]

_MAX_UNSENT: Final = 4096
"""Messages that an agent may leave unread before it is disconnected."""


class UnknownIdError(Exception):
    """The sandbox, container or command does not exist."""


class RequestError(Exception):
    """The request cannot be fulfilled; the text is for the user."""


class AgentRequest:
    """One request, to be answered now or later."""

    def __init__(
        self, connection: "AgentConnection", message: Document, descriptors: Sequence[int] = ()
    ) -> None:
        self.connection = connection
        self.message = message
        self._descriptors = list(descriptors)

    def take_descriptors(self) -> list[int]:
        """Return the descriptors that came with the request. The caller owns them."""
        taken, self._descriptors = self._descriptors, []
        return taken

    def answer(self, result: Document | None = None, descriptors: Sequence[int] = ()) -> None:
        """Send the result. The descriptors are closed once they are sent."""
        self.connection.send({"id": self.message["id"], "result": result or {}}, descriptors)

    def refuse(self, error: Exception) -> None:
        """Send an error."""
        kind = "missing" if isinstance(error, UnknownIdError) else "failure"
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        self.connection.send({"id": self.message["id"], "error": text, "kind": kind})

    def attempt(self, handler: Handler) -> None:
        """Run a handler and answer its errors. An unexpected exception is a bug; it is answered
        too, so that the agent does not wait forever, and raised."""
        try:
            handler(self)
        except (UnknownIdError, RequestError, OSError) as error:
            self.refuse(error)
        except Exception as error:
            self.refuse(RequestError(f"the supervisor failed: {type(error).__name__}: {error}"))
            raise


class AgentConnection:
    """The connection of one node agent."""

    def __init__(
        self, connected: socket.socket, loop: EventLoop, listener: "AgentListener"
    ) -> None:
        self._socket = connected
        self._loop = loop
        self._listener = listener
        self._unsent: deque[tuple[bytes, list[int]]] = deque()
        self.open = True
        connected.setblocking(False)
        self._listen()

    def _listen(self) -> None:
        events = READABLE | (WRITABLE if self._unsent else 0)
        self._loop.on(self._socket.fileno(), events, self._ready)

    def _ready(self) -> None:
        if self._unsent:
            self._flush()
        while self.open:
            try:
                message, descriptors = wire.take(self._socket)
            except BlockingIOError:
                return
            except (wire.PeerClosed, OSError, ValueError):
                self.close()
                return
            request = AgentRequest(self, message, descriptors)
            try:
                self._listener.handle(request)
            finally:
                _close(request.take_descriptors())

    def send(self, message: Document, descriptors: Sequence[int] = ()) -> None:
        if not self.open:
            _close(descriptors)
            return
        content, sent = wire.packet(message, descriptors)
        self._unsent.append((content, sent))
        if len(self._unsent) > _MAX_UNSENT:
            self.close()
        elif len(self._unsent) == 1:
            self._flush()

    def _flush(self) -> None:
        while self._unsent:
            content, descriptors = self._unsent[0]
            try:
                wire.post(self._socket, content, descriptors)
            except BlockingIOError:
                break
            except OSError:
                self.close()
                return
            self._unsent.popleft()
            _close(descriptors)
        self._listen()

    def close(self) -> None:
        if not self.open:
            return
        self.open = False
        for _, descriptors in self._unsent:
            _close(descriptors)
        self._unsent.clear()
        self._loop.off(self._socket.fileno())
        self._socket.close()
        self._listener.left(self)


class EventFeed:
    """Sends events to the agents that watch."""

    def __init__(self) -> None:
        self._connections: list[AgentConnection] = []

    def add(self, connection: AgentConnection) -> None:
        """Send all later events to a connection."""
        if connection not in self._connections:
            self._connections.append(connection)

    def send(self, event: Document) -> None:
        """Send an event to every connection that is still open."""
        self._connections = [each for each in self._connections if each.open]
        for connection in list(self._connections):
            connection.send({"event": event})


class AgentListener:
    """Accepts connections and passes requests to their handlers."""

    def __init__(
        self,
        directory: str,
        loop: EventLoop,
        handlers: dict[str, Handler],
        *,
        left: Callable[[AgentConnection], None],
    ) -> None:
        """`left` is called for a connection that has ended."""
        self._loop = loop
        self._handlers = handlers
        self._directory = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._left = left
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

    def handle(self, call: AgentRequest) -> None:
        handler = self._handlers.get(call.message.get("do", ""))
        if handler is None:
            call.refuse(
                RequestError(f"the supervisor does not know how to {call.message.get('do')}")
            )
            return
        call.attempt(handler)

    def left(self, connection: AgentConnection) -> None:
        self._left(connection)

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:
                # Out of descriptors: epoll reports the waiting connection again.
                return
            if _peer(connected) in (0, os.geteuid()):
                AgentConnection(connected, self._loop, self)
            else:
                connected.close()


def _peer(connected: socket.socket) -> int:
    """Return the user id of the peer."""
    size = struct.calcsize("3i")
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return int(struct.unpack("3i", credentials)[1])


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
