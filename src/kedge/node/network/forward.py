"""Ways into pods: ports of the machine, and the cluster's own address, handed on byte by byte.

In user space rather than by rules of the kernel: it works on loopback and without any firewall
program, needs no settings of the machine changed, and ends with the agent.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any, Final

_IP_TRANSPARENT: Final = 19
_DATAGRAM_PATIENCE: Final = 60.0
_PIECE: Final = 1 << 16

Target = tuple[str, int]


async def listen_tcp(address: str, port: int, target: Target) -> asyncio.Server:
    """Hand connections on; raises OSError if the port is taken."""
    return await asyncio.start_server(_handed_to(lambda: target), address, port)


async def listen_on_link(link: str, port: int, find: Callable[[], Target]) -> asyncio.Server:
    """Hand on what comes in by one link for the port, whatever address it is for."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, link.encode())
        # Without this, answers from an address that is not the machine's own are not sent.
        listener.setsockopt(socket.SOL_IP, _IP_TRANSPARENT, 1)
        listener.bind(("0.0.0.0", port))
        return await asyncio.start_server(_handed_to(find), sock=listener)
    except BaseException:
        listener.close()
        raise


def _handed_to(find: Callable[[], Target]) -> Callable[..., Any]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            try:
                theirs, ours = await asyncio.open_connection(*find())
                try:
                    async with asyncio.TaskGroup() as tasks:
                        tasks.create_task(_copy(reader, ours))
                        tasks.create_task(_copy(theirs, writer))
                finally:
                    ours.close()
            finally:
                writer.close()

    return handle


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Everything there is, and then the news that there is no more."""
    with contextlib.suppress(OSError):
        while piece := await source.read(_PIECE):
            sink.write(piece)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()


async def listen_udp(address: str, port: int, target: Target) -> asyncio.DatagramTransport:
    """Hand datagrams on, and answers back to whoever asked."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(
        lambda: _Front(target), local_addr=(address, port)
    )
    return transport


class _Front(asyncio.DatagramProtocol):
    """Where clients send to: has a socket towards the pod for each of them."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._back: dict[Any, _Back] = {}
        self._transport: asyncio.DatagramTransport

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        for back in list(self._back.values()):
            back.close()

    def datagram_received(self, data: bytes, address: Any) -> None:
        back = self._back.get(address)
        if back is None:
            back = self._back[address] = self._open(address)
        back.send(data)

    def _open(self, client: Any) -> "_Back":
        channel = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        channel.connect(self._target)
        return _Back(
            channel,
            lambda data: self._transport.sendto(data, client),
            lambda: self._back.pop(client, None),
        )


class _Back:
    """One client's socket towards the pod; closed after a while of silence."""

    def __init__(
        self, channel: socket.socket, answer: Callable[[bytes], None], forget: Callable[[], object]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._channel = channel
        self._answer = answer
        self._forget = forget
        self._alarm = self._loop.call_later(_DATAGRAM_PATIENCE, self.close)
        self._loop.add_reader(channel, self._receive)

    def send(self, data: bytes) -> None:
        self._defer()
        # Datagrams may be lost: those for a port where nobody listens are.
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
