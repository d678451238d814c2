"""The machine's resolvers: their addresses, and which of them to ask next."""

import contextlib
import socket
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from kedge.machinery.clock import Clock

MOST_SERVERS: Final = 3
"""As many as the C library uses."""
MOST_TRIES: Final = 3
READ_SECONDS: Final = 5.0
"""Seconds after which the list of resolvers is read again."""
FAILURES: Final = 4
"""Timeouts in a row after which a server is believed to be down. One timeout may be the fault of
the name."""
DOWN_SECONDS: Final = 5.0
_PORT: Final = 53

SocketAddress = tuple[Any, ...]


class UpstreamServers:
    """The resolvers in order, with what is known about their state."""

    def __init__(
        self, read: Callable[[], Sequence[str]], own: Collection[str], clock: Clock
    ) -> None:
        self._read = read
        self._own = own
        self._clock = clock
        self._read_at = -READ_SECONDS
        self._servers: tuple[SocketAddress, ...] = ()
        self._failures: dict[SocketAddress, int] = {}
        self._down_until: dict[SocketAddress, float] = {}

    def current(self) -> tuple[SocketAddress, ...]:
        """Return the addresses of the resolvers."""
        now = self._clock.monotonic()
        if now - self._read_at >= READ_SECONDS:
            self._read_at = now
            self._servers = addresses(self._read(), self._own)
            for state in (self._failures, self._down_until):
                for gone in state.keys() - set(self._servers):
                    del state[gone]
        return self._servers

    def order(self) -> tuple[SocketAddress, ...]:
        """Return the servers to try for one question, one after the other."""
        servers, now = self.current(), self._clock.monotonic()
        up = [each for each in servers if self._down_until.get(each, 0.0) <= now]
        chosen = [*up, *(each for each in servers if each not in up)]
        return tuple((chosen * MOST_TRIES)[:MOST_TRIES]) if chosen else ()

    def all_down(self) -> bool:
        now = self._clock.monotonic()
        return all(self._down_until.get(each, 0.0) > now for each in self.current())

    def answered(self, server: SocketAddress) -> None:
        self._failures.pop(server, None)
        self._down_until.pop(server, None)

    def failed(self, server: SocketAddress, *, refused: bool = False) -> None:
        """Count a timeout, or a port at which nothing listens."""
        count = FAILURES if refused else self._failures.get(server, 0) + 1
        self._failures[server] = count
        if count >= FAILURES:
            self._down_until[server] = self._clock.monotonic() + DOWN_SECONDS


def addresses(servers: Sequence[str], own: Collection[str]) -> tuple[SocketAddress, ...]:
    """Return the socket addresses of resolvers, without the addresses of this server itself, which
    would lead back here."""
    found: dict[SocketAddress, None] = {}
    for text in servers:
        if text in own:
            continue
        with contextlib.suppress(OSError, UnicodeError):
            flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
            listed = socket.getaddrinfo(text, _PORT, type=socket.SOCK_DGRAM, flags=flags)
            found[listed[0][4]] = None
    return tuple(found)[:MOST_SERVERS]
