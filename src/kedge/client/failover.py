"""FailoverTransport: requests to one of several servers of a cluster, or to the next one."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, TypeVar

from kedge.client.http import HttpTransport, NotConnected
from kedge.client.transport import Call, Reply, Stream, Unreachable

T = TypeVar("T")
_UNAVAILABLE: Final = 503


class FailoverTransport:
    """Fulfils Transport for several servers, which all know the same.

    A request goes to the server that answered last. A server that cannot be connected to is left
    for the next one, within the same request. A connection that breaks, or a server that is not
    available, may have carried out the request: its sender decides, and the next request goes to
    the next server.
    """

    def __init__(self, transports: Sequence[HttpTransport]) -> None:
        self._transports = transports
        self._current = 0

    async def send(self, call: Call) -> Reply:
        number, reply = await self._answer(lambda transport: transport.send(call))
        if reply.status == _UNAVAILABLE:
            self._leave(number)
        return reply

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[Stream]:
        async with AsyncExitStack() as stack:
            number, stream = await self._answer(
                lambda transport: stack.enter_async_context(transport.stream(call))
            )
            if stream.status == _UNAVAILABLE:
                self._leave(number)
            try:
                yield stream
            except Unreachable:
                self._leave(number)
                raise

    async def close(self) -> None:
        for transport in self._transports:
            await transport.close()

    async def _answer(self, ask: Callable[[HttpTransport], Awaitable[T]]) -> tuple[int, T]:
        """Return the answer of the first server that can be connected to, and which one it is."""
        left = len(self._transports)
        while True:
            number = self._current
            left -= 1
            try:
                return number, await ask(self._transports[number])
            except Unreachable as error:
                self._leave(number)
                if not left or not isinstance(error, NotConnected):
                    raise

    def _leave(self, number: int) -> None:
        """Use the next server from now on, unless another request has found that already."""
        if number == self._current:
            self._current = (number + 1) % len(self._transports)
