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

from kedge.node.network.network_place import NetworkPlace

_HEADER: Final = struct.Struct("=IHHII")
LINK: Final = struct.Struct("=BxHiII")
_ADDRESS: Final = struct.Struct("=BBBBI")
ROUTE: Final = struct.Struct("=BBBBBBBBI")
_ATTRIBUTE: Final = struct.Struct("=HH")

_REQUEST, _ACK, DUMP, EXCLUSIVE, CREATE = 0x1, 0x4, 0x300, 0x200, 0x400
_ERROR, _DONE = 2, 3
NEW_LINK, _DEL_LINK, GET_LINK = 16, 17, 18
_NEW_ADDRESS, _GET_ADDRESS = 20, 22
NEW_ROUTE, DEL_ROUTE, GET_ROUTE = 24, 25, 26
_NEW_RULE, _DEL_RULE = 32, 33

UP: Final = 1
MAIN_TABLE: Final = 254
_LOCAL_ROUTE: Final = 2
_UNREACHABLE_ROUTE: Final = 7
_LINK_SCOPE: Final = 253
_HOST_SCOPE: Final = 254
_ACT_TO_TABLE: Final = 1
_BOOT: Final = 3
"""RTPROT_BOOT: a route that a program added, not the kernel."""
_OF_FAMILIES: Final = 26
"""IFLA_AF_SPEC: the settings of a link by address family."""
_GROUP: Final = 27
"""IFLA_GROUP: a number by which several links are removed."""


class Netlink:
    """A netlink socket, bound to the network namespace in which it was opened."""

    def __init__(self, channel: socket.socket | None = None) -> None:
        self._socket = channel or socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE
        )
        self._sequence = 0
        # Kept, because a buffer of this size is mapped by the kernel anew each time.
        self._room = bytearray(1 << 17)

    @classmethod
    def within(cls, namespace: NetworkPlace) -> "Netlink":
        """Open a socket in a network namespace."""
        return cls(namespace.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE))

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> "Netlink":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def index(self, name: str) -> int:
        """Return the index of a link; 0 if it does not exist."""
        head = LINK.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
        try:
            answers = self.ask(GET_LINK, 0, head + text(3, name))
        except OSError:
            return 0
        return int(LINK.unpack_from(answers[0])[2]) if answers else 0

    def links(self) -> dict[str, int]:
        """Return the index of each link by name."""
        answers = self.ask(GET_LINK, DUMP, LINK.pack(socket.AF_UNSPEC, 0, 0, 0, 0))
        return {
            attributes(each[LINK.size :])[3].rstrip(b"\0").decode(): LINK.unpack_from(each)[2]
            for each in answers
        }

    def add_bridge(self, name: str, hardware_address: bytes = b"") -> None:
        """Add a bridge. Without a hardware address of its own, it would take another one whenever
        pods come and go, and pods would lose their gateway."""
        kind = nested(18, text(1, "bridge"))
        own = attribute(1, hardware_address) if hardware_address else b""
        self.ask(NEW_LINK, CREATE | EXCLUSIVE, _link() + text(3, name) + own + kind)

    def reflect(self, index: int) -> None:
        """Let a port of a bridge send a packet back to where it came from: a pod that reaches
        itself through a Service."""
        slave = nested(18, text(4, "bridge") + nested(5, attribute(4, b"\1")))
        self.ask(NEW_LINK, 0, LINK.pack(socket.AF_UNSPEC, 0, index, 0, 0) + slave)

    def add_pair(
        self,
        name: str,
        peer: str,
        namespace: str,
        master: int,
        hardware_address: bytes = b"",
        *,
        mtu: int = 0,
    ) -> None:
        """Add a veth pair: one end attached to a bridge here, the other in another namespace, with
        the hardware address. Without an MTU, both have the kernel's default."""
        target = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = number(4, mtu) if mtu else b""
            other = LINK.pack(socket.AF_UNSPEC, 0, 0, 0, 0) + text(3, peer) + size
            other += number(28, target)
            other += attribute(1, hardware_address) if hardware_address else b""
            kind = nested(18, text(1, "veth") + nested(2, nested(1, other)))
            body = _link(UP) + text(3, name) + size + number(10, master) + kind
            self.ask(NEW_LINK, CREATE | EXCLUSIVE, body)
        finally:
            os.close(target)

    def raise_link(self, index: int) -> None:
        self.ask(NEW_LINK, 0, LINK.pack(socket.AF_UNSPEC, 0, index, UP, UP))

    def set_ipv4(self, index: int, setting: int, value: int) -> None:
        """Change an IPv4 setting of a link (IPV4_DEVCONF_ of linux/ip.h), as /proc/sys would."""
        chosen = nested(_OF_FAMILIES, nested(socket.AF_INET, nested(1, number(setting, value))))
        self.ask(NEW_LINK, 0, LINK.pack(socket.AF_UNSPEC, 0, index, 0, 0) + chosen)

    def remove_link(self, name: str) -> None:
        """Remove a link, and the other end of a veth pair. Idempotent."""
        with contextlib.suppress(FileNotFoundError, OSError):
            self.ask(_DEL_LINK, 0, _link() + text(3, name))

    def set_group(self, name: str, group: int) -> None:
        """Put a link in a group. Nothing happens if the link does not exist."""
        if index := self.index(name):
            head = LINK.pack(socket.AF_UNSPEC, 0, index, 0, 0)
            self.ask(NEW_LINK, 0, head + number(_GROUP, group))

    def remove_group(self, group: int) -> None:
        """Remove all links of a group in one step, in the time that one link takes."""
        self.ask(_DEL_LINK, 0, _link() + number(_GROUP, group))

    def add_address(self, index: int, address: IPv4Interface) -> None:
        packed = address.ip.packed
        head = _ADDRESS.pack(socket.AF_INET, address.network.prefixlen, 0, 0, index)
        body = head + attribute(2, packed) + attribute(1, packed)
        self.ask(_NEW_ADDRESS, CREATE | EXCLUSIVE, body)

    def addresses(self) -> list[tuple[int, IPv4Interface]]:
        """Return the addresses of this machine, each with the index of its link."""
        answers = self.ask(_GET_ADDRESS, DUMP, _ADDRESS.pack(socket.AF_INET, 0, 0, 0, 0))
        found = []
        for each in answers:
            _, prefix, _, _, index = _ADDRESS.unpack_from(each)
            given = attributes(each[_ADDRESS.size :])
            # On a point-to-point link, attribute 1 is the address of the other side.
            if packed := given.get(2) or given.get(1):
                found.append((index, IPv4Interface((packed, prefix))))
        return found

    def set_mtu(self, index: int, size: int) -> None:
        head = LINK.pack(socket.AF_UNSPEC, 0, index, 0, 0)
        self.ask(NEW_LINK, 0, head + number(4, size))

    def mtu(self, index: int) -> int:
        """Return the largest packet that a link carries; 0 if the link does not exist."""
        try:
            answers = self.ask(GET_LINK, 0, LINK.pack(socket.AF_UNSPEC, 0, index, 0, 0))
        except OSError:
            return 0
        return int(struct.unpack("=I", attributes(answers[0][LINK.size :])[4])[0])

    def add_default_route(self, index: int, gateway: IPv4Address) -> None:
        head = ROUTE.pack(socket.AF_INET, 0, 0, 0, MAIN_TABLE, _BOOT, 0, 1, 0)
        body = head + attribute(5, gateway.packed) + number(4, index)
        self.ask(NEW_ROUTE, CREATE | EXCLUSIVE, body)

    def add_link_route(self, index: int, network: IPv4Network, metric: int = 0) -> None:
        """Reach a network directly by a link. Routes of a lower metric come first."""
        head = ROUTE.pack(
            socket.AF_INET, network.prefixlen, 0, 0, MAIN_TABLE, _BOOT, _LINK_SCOPE, 1, 0
        )
        body = head + attribute(1, network.network_address.packed) + number(4, index)
        self.ask(NEW_ROUTE, CREATE | EXCLUSIVE, body + number(6, metric))

    def add_unreachable_route(self, network: IPv4Network) -> None:
        """Answer packets to a network with an error."""
        head = ROUTE.pack(
            socket.AF_INET, network.prefixlen, 0, 0, MAIN_TABLE, _BOOT, 0, _UNREACHABLE_ROUTE, 0
        )
        body = head + attribute(1, network.network_address.packed)
        self.ask(NEW_ROUTE, CREATE | EXCLUSIVE, body)

    def deliver_here(self, link: str, network: IPv4Network, table: int) -> None:
        """Accept packets that arrive by a link for addresses that the machine does not have."""
        with contextlib.suppress(FileExistsError):
            here = number(4, self.index("lo")) + number(15, table)
            self.ask(NEW_ROUTE, CREATE | EXCLUSIVE, _local_route(network) + here)
        with contextlib.suppress(FileExistsError):
            self.ask(_NEW_RULE, CREATE | EXCLUSIVE, _rule(link, network, table))

    def stop_delivering(self, link: str, network: IPv4Network, table: int) -> None:
        with contextlib.suppress(FileNotFoundError, OSError):
            self.ask(_DEL_RULE, 0, _rule(link, network, table))
        with contextlib.suppress(ProcessLookupError, OSError):
            self.ask(DEL_ROUTE, 0, _local_route(network) + number(15, table))

    def routes(self) -> dict[IPv4Network, int]:
        """Return the index of the link of each route of the main table."""
        found: dict[IPv4Network, int] = {}
        for answer in self.ask(GET_ROUTE, DUMP, ROUTE.pack(socket.AF_INET, *[0] * 8)):
            given = attributes(answer[ROUTE.size :])
            if answer[4] == MAIN_TABLE and 1 in given and 4 in given:
                network = IPv4Network((given[1], answer[1]), strict=False)
                found[network] = struct.unpack("=I", given[4])[0]
        return found

    def networks(self) -> Iterator[IPv4Network]:
        """Return the networks to which this machine has routes, without the default route."""
        for answer in self.ask(GET_ROUTE, DUMP, ROUTE.pack(socket.AF_INET, *[0] * 8)):
            length = answer[1]
            destination = attributes(answer[ROUTE.size :]).get(1)
            if destination is not None and length:
                yield IPv4Network((destination, length), strict=False)

    def ask(self, kind: int, flags: int, body: bytes) -> list[bytes]:
        """Send a request and read the answer; raise the error of the kernel as OSError."""
        self._sequence += 1
        # A request for one link is answered with it; all others end with an acknowledgement.
        is_single = kind == GET_LINK and not flags & DUMP
        flags |= _REQUEST if is_single else _REQUEST | _ACK
        size = _HEADER.size + len(body)
        self._socket.send(_HEADER.pack(size, kind, flags, self._sequence, 0) + body)
        answers: list[bytes] = []
        while True:
            received = self._socket.recv_into(self._room)
            for said, content in _messages(bytes(self._room[:received])):
                if said == _ERROR:
                    failure = -struct.unpack_from("=i", content)[0]
                    if failure:
                        raise OSError(failure, os.strerror(failure))
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


def attributes(data: bytes) -> dict[int, bytes]:
    found = {}
    while len(data) >= _ATTRIBUTE.size:
        size, kind = _ATTRIBUTE.unpack_from(data)
        found[kind] = data[_ATTRIBUTE.size : size]
        data = data[_aligned(size) :]
    return found


def _link(flags: int = 0) -> bytes:
    return LINK.pack(socket.AF_UNSPEC, 0, 0, flags, flags)


def _local_route(network: IPv4Network) -> bytes:
    head = ROUTE.pack(
        socket.AF_INET, network.prefixlen, 0, 0, 0, _BOOT, _HOST_SCOPE, _LOCAL_ROUTE, 0
    )
    return head + attribute(1, network.network_address.packed)


def _rule(link: str, network: IPv4Network, table: int) -> bytes:
    head = ROUTE.pack(socket.AF_INET, network.prefixlen, 0, 0, 0, 0, 0, _ACT_TO_TABLE, 0)
    destination = attribute(1, network.network_address.packed)
    # With a priority of its own; otherwise the kernel takes it for an existing rule.
    place = number(6, table)
    return head + destination + text(3, link) + place + number(15, table)


def attribute(kind: int, content: bytes) -> bytes:
    size = _ATTRIBUTE.size + len(content)
    return _ATTRIBUTE.pack(size, kind) + content + bytes(_aligned(size) - size)


def nested(kind: int, content: bytes) -> bytes:
    return attribute(kind, content)


def text(kind: int, content: str) -> bytes:
    return attribute(kind, content.encode() + b"\0")


def number(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("=I", value))


def _aligned(size: int) -> int:
    return (size + 3) & ~3
