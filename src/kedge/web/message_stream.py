"""A streamed body as messages of a WebSocket: one message for each line, or for each piece."""

import contextlib
from collections.abc import Iterator

from kedge.machinery.errors import bad_request
from kedge.web import websocket
from kedge.web.duplex import Duplex
from kedge.web.message import HttpRequest, Response, Stream
from kedge.web.websocket import WebSocket


def in_messages(http: HttpRequest, stream: Stream, *, text: bool) -> Response:
    """Return the response that sends a stream as messages: lines of text, or binary pieces. Of the
    subprotocols that the client offers the first is accepted; none changes the messages."""
    if broken := websocket.refusal(http.headers):
        raise bad_request(broken)
    protocol = next(iter(websocket.protocols(http.headers)), "")

    async def take_over(duplex: Duplex) -> None:
        from kedge.machinery.task_group import TaskGroup

        socket = WebSocket(duplex)
        async with TaskGroup() as tasks:
            sending = tasks.create_task(_send(stream, MessageSink(socket, duplex, text=text)))
            leaving = tasks.create_task(_left(socket))
            sending.add_done_callback(lambda _: leaving.cancel())
            leaving.add_done_callback(lambda _: sending.cancel())
        await socket.close()

    return Response(101, headers=websocket.accepting(http.headers, protocol), take_over=take_over)


async def _send(stream: Stream, sink: "MessageSink") -> None:
    with contextlib.suppress(ConnectionError):
        await stream(sink)


async def _left(socket: WebSocket) -> None:
    """Return when the client leaves; messages from the client are ignored."""
    while await socket.piece() is not None:
        pass


class MessageSink:
    """Fulfils Sink: what is written becomes messages."""

    def __init__(self, socket: WebSocket, duplex: Duplex, *, text: bool) -> None:
        self._socket = socket
        self._duplex = duplex
        self._text = text

    @property
    def paused(self) -> bool:
        return self._duplex.paused

    def write(self, data: bytes) -> None:
        for message in self._messages(data):
            self._socket.send(message, text=self._text)

    def _messages(self, data: bytes) -> Iterator[bytes]:
        if self._text:
            yield from filter(None, data.split(b"\n"))
        elif data:
            yield data

    async def drain(self) -> None:
        await self._socket.drain()
