"""Forwarding to pods in user space: host ports, and all Services if the kernel refuses nf_tables.

It needs no rules, works on loopback, and ends with the agent.
"""

import asyncio
import contextlib
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, NamedTuple, Protocol

from kedge.node.network.network_place import MACHINE, NetworkPlace

log = logging.getLogger(__name__)

_IP_TRANSPARENT: Final = 19
_DATAGRAM_PATIENCE: Final = 60.0
_PIECE: Final = 1 << 16
PER_SOURCE: Final = 256
"""Connections of one pod to the API server: one for each watch of a busy operator."""
TOTAL: Final = 1024
"""Connections, or peers that send datagrams, of one port."""

Target = tuple[str, int]
TargetChooser = Callable[[str], Target]
"""Returns the target for a client's address. Raises OSError if there is none."""


TargetCheck = Callable[[Target], bool]
"""Returns whether a target is still one."""


def _always(_: Target) -> bool:
    return True


class NodeLink(NamedTuple):
    """A link of a node's network."""

    name: str
    network: NetworkPlace = MACHINE


class PortListener(Protocol):
    """A listener that can be closed."""

    def close(self) -> None: ...


class RetryingListener:
    """A listener that is retried while its port is in use, by another program or another
    cluster."""

    def __init__(self, what: str, listen: Callable[[], Awaitable[PortListener]]) -> None:
        self._what = what
        self._listen = listen
        self._listening: PortListener | None = None
        self._is_logged = False
        self._closed = False

    async def attempt(self) -> bool:
        """Try to listen; return whether the listener is open or closed for good."""
        if self._closed:
            return True
        try:
            self._listening = await self._listen()
        except OSError as error:
            if not self._is_logged:
                log.warning("%s is not reachable: %s; retrying", self._what, error)
            self._is_logged = True
            return False
        if self._closed:
            self._listening.close()
        elif self._is_logged:
            log.info("%s is reachable", self._what)
        return True

    def close(self) -> None:
        self._closed = True
        if self._listening is not None:
            self._listening.close()


class ConnectionLimit:
    """Counts connections by source address. The server sees all pods under the machine's address,
    so pods can be distinguished only here."""

    def __init__(self, per_source: int = PER_SOURCE, total: int = TOTAL) -> None:
        self._per_source = per_source
        self._total = total
        self._counts: Counter[str] = Counter()

    @contextlib.contextmanager
    def connection(self, source: str) -> Iterator[bool]:
        """Count a connection; yield whether it is below the limit."""
        if self._counts[source] >= self._per_source or self._counts.total() >= self._total:
            yield False
            return
        self._counts[source] += 1
        try:
            yield True
        finally:
            self._counts[source] -= 1
            if not self._counts[source]:
                del self._counts[source]


async def listen_tcp(
    address: str, port: int, target: Target, network: NetworkPlace = MACHINE
) -> asyncio.Server:
    """Forward TCP connections to a target in a network. Raises OSError if the port is in use."""
    return await listen_tcp_for(address, port, lambda _: target, network)


async def listen_tcp_for(
    address: str, port: int, find: TargetChooser, network: NetworkPlace = MACHINE
) -> asyncio.Server:
    """Forward TCP connections to targets that may change."""
    # No limit per address: many clients may share one.
    handle = _forwarder(find, ConnectionLimit(TOTAL), network)
    return await asyncio.start_server(handle, address, port)


async def listen_on_link(
    link: NodeLink, here: Target, find: TargetChooser, network: NetworkPlace = MACHINE
) -> asyncio.Server:
    """Forward TCP connections that arrive by one link, for an address that the machine need not
    have, to targets in a network."""
    listener = _bound_to_link(link, here, socket.SOCK_STREAM)
    try:
        return await asyncio.start_server(
            _forwarder(find, ConnectionLimit(), network), sock=listener
        )
    except BaseException:
        listener.close()
        raise


async def listen_udp_on_link(
    link: NodeLink, here: Target, find: TargetChooser, is_current: TargetCheck = _always
) -> asyncio.DatagramTransport:
    """Forward datagrams that arrive by one link, for an address that the machine need not have."""
    listener = _bound_to_link(link, here, socket.SOCK_DGRAM)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(
        lambda: DatagramListener(AddressTargets(find, is_current), link.network), sock=listener
    )
    return transport


def _bound_to_link(link: NodeLink, here: Target, kind: int) -> socket.socket:
    listener = link.network.socket(socket.AF_INET, kind | socket.SOCK_NONBLOCK)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, link.name.encode())
        # Without this, binding to an address that the machine does not have fails.
        listener.setsockopt(socket.SOL_IP, _IP_TRANSPARENT, 1)
        listener.bind(here)
    except BaseException:
        listener.close()
        raise
    return listener


def _forwarder(
    find: TargetChooser, sources: ConnectionLimit, network: NetworkPlace
) -> Callable[..., Any]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        source = (writer.get_extra_info("peername") or ("",))[0]
        try:
            with sources.connection(source) as is_below_limit:
                if is_below_limit:
                    await forward(reader, writer, find(source), network)
                else:
                    writer.transport.abort()
        except OSError:
            # The client sees a reset, as if nothing listened.
            writer.transport.abort()

    return handle


async def forward(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    target: Target,
    network: NetworkPlace,
) -> None:
    """Connect to a target in a network and copy both ways until both ends have closed."""
    try:
        theirs, ours = await network.connect(*target)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_copy(reader, ours))
                tasks.create_task(_copy(theirs, writer))
        finally:
            ours.close()
    finally:
        writer.close()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Copy a stream to its end, then close the writing side."""
    # uvloop raises RuntimeError if the other direction has closed the transport.
    with contextlib.suppress(OSError, RuntimeError):
        while piece := await source.read(_PIECE):
            sink.write(piece)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()


async def listen_udp(
    address: str, port: int, target: Target, network: NetworkPlace = MACHINE
) -> asyncio.DatagramTransport:
    """Forward datagrams to the target, and its answers to their senders."""
    return await listen_udp_for(address, port, lambda _: target, network)


async def listen_udp_for(
    address: str,
    port: int,
    find: TargetChooser,
    network: NetworkPlace = MACHINE,
    is_current: TargetCheck = _always,
) -> asyncio.DatagramTransport:
    """Forward datagrams to targets that may change. A client stays with its target as long as that
    is current."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(
        lambda: DatagramListener(AddressTargets(find, is_current), network),
        local_addr=(address, port),
    )
    return transport


class DatagramTargets(Protocol):
    """Decides where the datagrams of a client go. Raises OSError if they go nowhere."""

    def find(self, client: Any) -> Target:
        """Return the target of a new client."""
        ...

    def is_current(self, client: Any, target: Target, silence: float) -> bool:
        """Whether a client keeps its target after so many seconds of silence."""
        ...


class AddressTargets(NamedTuple):
    """Targets by the addresses of clients."""

    choose: TargetChooser
    keeps: TargetCheck

    def find(self, client: Any) -> Target:
        return self.choose(client[0])

    def is_current(self, client: Any, target: Target, silence: float) -> bool:
        return self.keeps(target)


class DatagramListener(asyncio.DatagramProtocol):
    """Receives datagrams of clients; each client has a socket to its target in a network."""

    def __init__(
        self,
        targets: DatagramTargets,
        network: NetworkPlace,
        *,
        per_source: int = TOTAL,
    ) -> None:
        """`per_source` are the clients of one address."""
        self._targets = targets
        self._network = network
        self._per_source = per_source
        self._back: dict[Any, _DatagramPeer] = {}
        self._transport: asyncio.DatagramTransport

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        for back in list(self._back.values()):
            back.close()

    def datagram_received(self, data: bytes, address: Any) -> None:
        back = self._back.get(address)
        try:
            if back is not None and self._is_stale(back, address):
                back.close()
                back = None
            if back is None:
                self._make_room(address[0])
                back = self._back[address] = self._open(address)
        except OSError:
            return
        back.send(data)

    def _is_stale(self, back: "_DatagramPeer", client: Any) -> bool:
        return not self._targets.is_current(client, back.target, back.silence())

    def _make_room(self, source: str) -> None:
        """Close the oldest peer of a source that has too many, or else the oldest of all. Each peer
        takes a descriptor, and source addresses of datagrams are easily forged."""
        own = [each for each in self._back if each[0] == source]
        if len(own) >= self._per_source:
            self._back[own[0]].close()
        elif len(self._back) >= TOTAL:
            next(iter(self._back.values())).close()

    def _open(self, client: Any) -> "_DatagramPeer":
        target = self._targets.find(client)
        channel = self._network.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            channel.connect(target)
        except OSError:
            channel.close()
            raise
        return _DatagramPeer(
            target,
            channel,
            lambda data: self._transport.sendto(data, client),
            lambda: self._back.pop(client, None),
        )


class _DatagramPeer:
    """The socket of one client to the pod; it is closed after a period of silence."""

    def __init__(
        self,
        target: Target,
        channel: socket.socket,
        answer: Callable[[bytes], None],
        forget: Callable[[], object],
    ) -> None:
        self.target = target
        self._loop = asyncio.get_running_loop()
        self._channel = channel
        self._answer = answer
        self._forget = forget
        self._alarm = self._loop.call_later(_DATAGRAM_PATIENCE, self.close)
        self._heard_at = self._loop.time()
        self._loop.add_reader(channel, self._receive)

    def silence(self) -> float:
        """Return the seconds since the client's last datagram."""
        return self._loop.time() - self._heard_at

    def send(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        self._defer()
        # Datagrams may be lost, for instance if nothing listens on the port.
        with contextlib.suppress(OSError):
            self._channel.send(data)

    def _receive(self) -> None:
        self._defer()
        with contextlib.suppress(OSError):
            self._answer(self._channel.recv(_PIECE))

    def _defer(self) -> None:
        self._alarm.cancel()
        self._alarm = self._loop.call_later(_DATAGRAM_PATIENCE, self.close)

    def close(self) -> None:
        self._alarm.cancel()
        self._loop.remove_reader(self._channel)
        self._channel.close()
        self._forget()
