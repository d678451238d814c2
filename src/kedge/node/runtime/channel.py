"""The agent's connection to the supervisor."""

import asyncio
import contextlib
import os
import socket
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from kedge.machinery.clock import Clock
from kedge.node.runtime import spawn
from kedge.node.runtime.runtime import NotFoundError, RuntimeFailure
from kedge.node.runtime.spawn import SupervisorStart
from kedge.supervisor import wire

Document = dict[str, Any]
Answer = tuple[Document, list[int]]

_ATTEMPTS: Final = 100
_PAUSE: Final = 0.02
_GONE: Final = "the connection to the supervisor is lost"


class SupervisorLost(RuntimeFailure):
    """The connection is lost; it is unknown whether the supervisor has carried out the request."""


class SupervisorChannel:
    """Requests and responses over one socket, and events."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._unsent: deque[tuple[bytes, list[int]]] = deque()
        self._last = 0
        self._watchers: list[asyncio.Queue[Document | None]] = []
        self.is_open = True
        connected.setblocking(False)
        self._loop.add_reader(connected, self._readable)

    async def call(self, do: str, descriptors: Sequence[int] = (), /, **fields: object) -> Answer:
        """Return the supervisor's response; the caller owns the descriptors in it. The given
        descriptors must stay open until then."""
        if not self.is_open:
            raise SupervisorLost(_GONE)
        self._last += 1
        number = self._last
        answer: asyncio.Future[Answer] = self._loop.create_future()
        self._waiting[number] = answer
        self._send(wire.packet({"id": number, "do": do, **fields}, descriptors))
        try:
            return await answer
        finally:
            self._waiting.pop(number, None)
            if answer.cancelled():
                # Descriptors of a response that arrives later must be closed.
                self._waiting[number] = self._unwanted()

    def _unwanted(self) -> asyncio.Future[Answer]:
        answer: asyncio.Future[Answer] = self._loop.create_future()
        answer.add_done_callback(_discard)
        return answer

    async def ask(self, do: str, **fields: object) -> Document:
        """Return the response of a request without descriptors."""
        document, descriptors = await self.call(do, **fields)
        for descriptor in descriptors:
            os.close(descriptor)
        return document

    def watch(self, queue: asyncio.Queue[Document | None]) -> None:
        """Put events into the queue, and None when the connection is lost."""
        self._watchers.append(queue)
        if not self.is_open:
            queue.put_nowait(None)

    def unwatch(self, queue: asyncio.Queue[Document | None]) -> None:
        with contextlib.suppress(ValueError):
            self._watchers.remove(queue)

    def close(self) -> None:
        if not self.is_open:
            return
        self.is_open = False
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        for content, descriptors in self._unsent:
            wire.let_go(content, descriptors)
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(SupervisorLost(_GONE))
        for queue in self._watchers:
            queue.put_nowait(None)

    def _send(self, packed: tuple[bytes, list[int]]) -> None:
        self._unsent.append(packed)
        if len(self._unsent) == 1:
            self._flush()

    def _flush(self) -> None:
        while self._unsent:
            content, descriptors = self._unsent[0]
            try:
                wire.post(self._socket, content, descriptors)
            except BlockingIOError:
                self._loop.add_writer(self._socket, self._flush)
                return
            except OSError:
                self.close()
                return
            self._unsent.popleft()
            wire.let_go(content, descriptors)
        self._loop.remove_writer(self._socket)

    def _readable(self) -> None:
        while self.is_open:
            try:
                message, descriptors = wire.take(self._socket)
            except BlockingIOError:
                return
            except (wire.PeerClosed, OSError):
                self.close()
                return
            if "event" in message:
                for queue in self._watchers:
                    queue.put_nowait(message["event"])
            else:
                self._answer(message, descriptors)

    def _answer(self, message: Document, descriptors: list[int]) -> None:
        answer = self._waiting.get(message["id"])
        if answer is None or answer.done():
            for descriptor in descriptors:
                os.close(descriptor)
        elif "error" not in message:
            answer.set_result((message["result"], descriptors))
        elif message["kind"] == "missing":
            answer.set_exception(NotFoundError(message["error"]))
        else:
            answer.set_exception(RuntimeFailure(message["error"]))


def _discard(answer: asyncio.Future[Answer]) -> None:
    if not answer.cancelled() and answer.exception() is None:
        for descriptor in answer.result()[1]:
            os.close(descriptor)


async def connect(
    directory: Path, clock: Clock, begun: SupervisorStart | None = None
) -> SupervisorChannel:
    """Return a connection to the supervisor of a directory, which is started if it does not run;
    `begun` is one that is starting."""
    for _ in range(_ATTEMPTS):
        failure = await asyncio.to_thread(begun.failure) if begun is not None else ""
        if failure and _is_elsewhere(failure):
            # Another supervisor is starting or ending; it will listen, or exit.
            await clock.sleep(_PAUSE)
        elif failure:
            raise RuntimeFailure(f"the supervisor does not start: {failure}")
        connected = spawn.connected(directory)
        if connected is not None:
            return SupervisorChannel(connected)
        begun = SupervisorStart(directory)
    raise RuntimeFailure(f"the supervisor of {directory} does not answer")


def _is_elsewhere(failure: str) -> bool:
    return failure.startswith("another supervisor")
