"""Connection tracking: reads UDP flows and deletes single ones."""

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from ipaddress import IPv4Address
from typing import Final, NamedTuple

from kedge.node.network.network_place import MACHINE, NetworkPlace
from kedge.node.network.nftables.attributes import (
    INET,
    attribute,
    message,
    nested,
    read_attributes,
    read_messages,
)
from kedge.node.network.nftables.channel import dumped, error_number, open_netfilter

_SUBSYSTEM: Final = 1
_GET, _DELETE = 1, 2
_REQUEST, _ACK, _DUMP = 0x1, 0x4, 0x300
_ERROR: Final = 2
_ORIGINAL, _REPLY, _ID = 1, 2, 12
_HEAD: Final = 4
UDP: Final = 17


class TrackedFlow(NamedTuple):
    """A flow with its translated addresses."""

    source: IPv4Address
    source_port: int
    destination: IPv4Address
    """The destination that the client sent to."""
    port: int
    answered_by: IPv4Address
    """The source of answers: the destination after translation."""
    answered_port: int
    tuple: bytes
    """The original tuple as the kernel reported it."""
    id: bytes


class FlowLookup:
    """Looks up single UDP flows to a socket of the machine by the addresses that the socket
    sees."""

    def __init__(self, namespace: NetworkPlace, address: str, port: int) -> None:
        self._channel = open_netfilter(namespace)
        self._here = IPv4Address(address).packed, port

    def close(self) -> None:
        self._channel.close()

    def flow_from(self, client: IPv4Address, port: int) -> TrackedFlow:
        """Return the flow with this source as the socket sees it. Raises OSError."""
        address, own_port = self._here
        ends = nested(1, attribute(1, address) + attribute(2, client.packed))
        ports = attribute(2, own_port.to_bytes(2, "big")) + attribute(3, port.to_bytes(2, "big"))
        answer = nested(_REPLY, ends + nested(2, attribute(1, bytes([UDP])) + ports))
        request = message(_SUBSYSTEM << 8 | _GET, _REQUEST, 0, answer, family=INET)
        self._channel.send(request)
        for kind, _, content in read_messages(self._channel.recv(1 << 16)):
            if kind == _ERROR:
                number = error_number(content)
                raise OSError(number, os.strerror(number))
            for flow in read_flow(content):
                return flow
        raise FileNotFoundError("the kernel does not track the flow")


def udp_flows(namespace: NetworkPlace = MACHINE) -> list[TrackedFlow]:
    """Return the UDP flows that the kernel tracks in a network namespace."""
    with contextlib.closing(open_netfilter(namespace)) as channel:
        channel.send(message(_SUBSYSTEM << 8 | _GET, _REQUEST | _DUMP, 0, b"", family=INET))
        return [flow for content in dumped(channel) for flow in read_flow(content)]


def delete_flows(flows: list[TrackedFlow], namespace: NetworkPlace = MACHINE) -> int:
    """Delete flows; return how many there still were."""
    if not flows:
        return 0
    with contextlib.closing(open_netfilter(namespace)) as channel:
        return sum(_delete(channel, each) for each in flows)


def _delete(channel: socket.socket, flow: TrackedFlow) -> bool:
    # A request without a tuple would delete all flows of the machine.
    body = nested(_ORIGINAL, flow.tuple) + attribute(_ID, flow.id)
    channel.send(message(_SUBSYSTEM << 8 | _DELETE, _REQUEST | _ACK, 1, body, family=INET))
    for kind, _, content in read_messages(channel.recv(1 << 16)):
        if kind == _ERROR and (number := error_number(content)):
            if number == 2:
                return False
            raise OSError(number, os.strerror(number))
    return True


def read_flow(content: bytes) -> Iterator[TrackedFlow]:
    found = read_attributes(content[_HEAD:])
    original, reply, number = found.get(_ORIGINAL), found.get(_REPLY), found.get(_ID)
    if not original or not reply or not number:
        return
    forward, backward = _ends(original), _ends(reply)
    if forward is None or backward is None:
        return
    yield TrackedFlow(*forward, *backward[:2], original, number)


def _ends(content: bytes) -> tuple[IPv4Address, int, IPv4Address, int] | None:
    """Return source and destination of a tuple; None if it is not UDP over IPv4."""
    found = read_attributes(content)
    addresses, protocol = read_attributes(found.get(1, b"")), read_attributes(found.get(2, b""))
    if protocol.get(1) != bytes([UDP]) or not {1, 2} <= addresses.keys():
        return None
    if not {2, 3} <= protocol.keys():
        return None
    source_port, port = (struct.unpack(">H", protocol[each])[0] for each in (2, 3))
    return IPv4Address(addresses[1]), source_port, IPv4Address(addresses[2]), port
