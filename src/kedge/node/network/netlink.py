"""A small rtnetlink client: links, addresses, routes and rules.

It covers only what pods need. A program such as `ip` would take ten times as long for each pod, and
may not be installed.
"""

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Final

_HEADER: Final = struct.Struct("=IHHII")
_LINK: Final = struct.Struct("=BxHiII")
_ADDRESS: Final = struct.Struct("=BBBBI")
_ROUTE: Final = struct.Struct("=BBBBBBBBI")
_ATTRIBUTE: Final = struct.Struct("=HH")

_REQUEST, _ACK, _DUMP, _EXCLUSIVE, _CREATE = 0x1, 0x4, 0x300, 0x200, 0x400
_ERROR, _DONE = 2, 3
_NEW_LINK, _DEL_LINK, _GET_LINK = 16, 17, 18
_NEW_ADDRESS, _NEW_ROUTE, _DEL_ROUTE, _GET_ROUTE = 20, 24, 25, 26
_NEW_RULE, _DEL_RULE = 32, 33

_UP: Final = 1
_MAIN_TABLE: Final = 254
_LOCAL_ROUTE: Final = 2
_LINK_SCOPE: Final = 253
_HOST_SCOPE: Final = 254
_ACT_TO_TABLE: Final = 1
_BOOT: Final = 3
"""RTPROT_BOOT: a route that a program added, not the kernel."""


class Netlink:
    """A netlink socket, bound to the network namespace in which it was opened."""

    def __init__(self, channel: socket.socket | None = None) -> None:
        self._socket = channel or socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE
        )
        self._sequence = 0
        # Kept, because a buffer of this size is mapped by the kernel anew each time.
        self._room = bytearray(1 << 17)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> "Netlink":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def index(self, name: str) -> int:
        """Return the index of a link; 0 if it does not exist."""
        head = _LINK.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
        try:
            answers = self._ask(_GET_LINK, 0, head + _text(3, name))
        except OSError:
            return 0
        return int(_LINK.unpack_from(answers[0])[2]) if answers else 0

    def links(self) -> dict[str, int]:
        """Return the index of each link by name."""
        answers = self._ask(_GET_LINK, _DUMP, _LINK.pack(socket.AF_UNSPEC, 0, 0, 0, 0))
        return {
            _attributes(each[_LINK.size :])[3].rstrip(b"\0").decode(): _LINK.unpack_from(each)[2]
            for each in answers
        }

    def add_bridge(self, name: str, hardware_address: bytes = b"") -> None:
        """Add a bridge. Without a hardware address of its own, it would take another one whenever
        pods come and go, and pods would lose their gateway."""
        kind = _nested(18, _text(1, "bridge"))
        own = _attribute(1, hardware_address) if hardware_address else b""
        self._ask(_NEW_LINK, _CREATE | _EXCLUSIVE, _link() + _text(3, name) + own + kind)

    def reflect(self, name: str) -> None:
        """Let a port of a bridge send a packet back to where it came from: a pod that reaches
        itself through a Service."""
        slave = _nested(18, _text(4, "bridge") + _nested(5, _attribute(4, b"\1")))
        self._ask(_NEW_LINK, 0, _LINK.pack(socket.AF_UNSPEC, 0, self.index(name), 0, 0) + slave)

    def add_pair(self, name: str, peer: str, namespace: str, master: int) -> None:
        """Add a veth pair: one end attached to a bridge here, the other in another namespace."""
        target = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
        try:
            other = _LINK.pack(socket.AF_UNSPEC, 0, 0, 0, 0) + _text(3, peer) + _number(28, target)
            kind = _nested(18, _text(1, "veth") + _nested(2, _nested(1, other)))
            body = _link(_UP) + _text(3, name) + _number(10, master) + kind
            self._ask(_NEW_LINK, _CREATE | _EXCLUSIVE, body)
        finally:
            os.close(target)

    def raise_link(self, index: int) -> None:
        self._ask(_NEW_LINK, 0, _LINK.pack(socket.AF_UNSPEC, 0, index, _UP, _UP))

    def remove_link(self, name: str) -> None:
        """Remove a link, and the other end of a veth pair. Idempotent."""
        with contextlib.suppress(FileNotFoundError, OSError):
            self._ask(_DEL_LINK, 0, _link() + _text(3, name))

    def add_address(self, index: int, address: IPv4Interface) -> None:
        packed = address.ip.packed
        head = _ADDRESS.pack(socket.AF_INET, address.network.prefixlen, 0, 0, index)
        body = head + _attribute(2, packed) + _attribute(1, packed)
        self._ask(_NEW_ADDRESS, _CREATE | _EXCLUSIVE, body)

    def add_default_route(self, index: int, gateway: IPv4Address) -> None:
        head = _ROUTE.pack(socket.AF_INET, 0, 0, 0, _MAIN_TABLE, _BOOT, 0, 1, 0)
        body = head + _attribute(5, gateway.packed) + _number(4, index)
        self._ask(_NEW_ROUTE, _CREATE | _EXCLUSIVE, body)

    def add_link_route(self, index: int, network: IPv4Network) -> None:
        """Reach a network directly by a link."""
        head = _ROUTE.pack(
            socket.AF_INET, network.prefixlen, 0, 0, _MAIN_TABLE, _BOOT, _LINK_SCOPE, 1, 0
        )
        body = head + _attribute(1, network.network_address.packed) + _number(4, index)
        self._ask(_NEW_ROUTE, _CREATE | _EXCLUSIVE, body)

    def deliver_here(self, link: str, network: IPv4Network, table: int) -> None:
        """Accept packets that arrive by a link for addresses that the machine does not have."""
        with contextlib.suppress(FileExistsError):
            here = _number(4, self.index("lo")) + _number(15, table)
            self._ask(_NEW_ROUTE, _CREATE | _EXCLUSIVE, _local_route(network) + here)
        with contextlib.suppress(FileExistsError):
            self._ask(_NEW_RULE, _CREATE | _EXCLUSIVE, _rule(link, network, table))

    def stop_delivering(self, link: str, network: IPv4Network, table: int) -> None:
        with contextlib.suppress(FileNotFoundError, OSError):
            self._ask(_DEL_RULE, 0, _rule(link, network, table))
        with contextlib.suppress(ProcessLookupError, OSError):
            self._ask(_DEL_ROUTE, 0, _local_route(network) + _number(15, table))

    def routes(self) -> dict[IPv4Network, int]:
        """Return the index of the link of each route of the main table."""
        found: dict[IPv4Network, int] = {}
        for answer in self._ask(_GET_ROUTE, _DUMP, _ROUTE.pack(socket.AF_INET, *[0] * 8)):
            attributes = _attributes(answer[_ROUTE.size :])
            if answer[4] == _MAIN_TABLE and 1 in attributes and 4 in attributes:
                network = IPv4Network((attributes[1], answer[1]), strict=False)
                found[network] = struct.unpack("=I", attributes[4])[0]
        return found

    def networks(self) -> Iterator[IPv4Network]:
        """Return the networks to which this machine has routes, without the default route."""
        for answer in self._ask(_GET_ROUTE, _DUMP, _ROUTE.pack(socket.AF_INET, *[0] * 8)):
            length = answer[1]
            destination = _attributes(answer[_ROUTE.size :]).get(1)
            if destination is not None and length:
                yield IPv4Network((destination, length), strict=False)

    def _ask(self, kind: int, flags: int, body: bytes) -> list[bytes]:
        """Send a request and read the answer; raise the error of the kernel as OSError."""
        self._sequence += 1
        # A request for one link is answered with it; all others end with an acknowledgement.
        is_single = kind == _GET_LINK and not flags & _DUMP
        flags |= _REQUEST if is_single else _REQUEST | _ACK
        size = _HEADER.size + len(body)
        self._socket.send(_HEADER.pack(size, kind, flags, self._sequence, 0) + body)
        answers: list[bytes] = []
        while True:
            received = self._socket.recv_into(self._room)
            for said, content in _messages(bytes(self._room[:received])):
                if said == _ERROR:
                    number = -struct.unpack_from("=i", content)[0]
                    if number:
                        raise OSError(number, os.strerror(number))
                    return answers
                if said == _DONE:
                    return answers
                answers.append(content)
            if is_single:
                return answers


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    while data:
        size, kind, _, _, _ = _HEADER.unpack_from(data)
        yield kind, data[_HEADER.size : size]
        data = data[_aligned(size) :]


def _attributes(data: bytes) -> dict[int, bytes]:
    found = {}
    while len(data) >= _ATTRIBUTE.size:
        size, kind = _ATTRIBUTE.unpack_from(data)
        found[kind] = data[_ATTRIBUTE.size : size]
        data = data[_aligned(size) :]
    return found


def _link(flags: int = 0) -> bytes:
    return _LINK.pack(socket.AF_UNSPEC, 0, 0, flags, flags)


def _local_route(network: IPv4Network) -> bytes:
    head = _ROUTE.pack(
        socket.AF_INET, network.prefixlen, 0, 0, 0, _BOOT, _HOST_SCOPE, _LOCAL_ROUTE, 0
    )
    return head + _attribute(1, network.network_address.packed)


def _rule(link: str, network: IPv4Network, table: int) -> bytes:
    head = _ROUTE.pack(socket.AF_INET, network.prefixlen, 0, 0, 0, 0, 0, _ACT_TO_TABLE, 0)
    destination = _attribute(1, network.network_address.packed)
    # With a priority of its own; otherwise the kernel takes it for an existing rule.
    place = _number(6, table)
    return head + destination + _text(3, link) + place + _number(15, table)


def _attribute(kind: int, content: bytes) -> bytes:
    size = _ATTRIBUTE.size + len(content)
    return _ATTRIBUTE.pack(size, kind) + content + bytes(_aligned(size) - size)


def _nested(kind: int, content: bytes) -> bytes:
    return _attribute(kind, content)


def _text(kind: int, text: str) -> bytes:
    return _attribute(kind, text.encode() + b"\0")


def _number(kind: int, number: int) -> bytes:
    return _attribute(kind, struct.pack("=I", number))


def _aligned(size: int) -> int:
    return (size + 3) & ~3
