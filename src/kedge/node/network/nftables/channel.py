"""The netlink socket of nf_tables: sends batches and reads what the kernel has."""

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from kedge.node.network.network_place import MACHINE, NetworkPlace
from kedge.node.network.nftables.attributes import (
    INET,
    message,
    read_attributes,
    read_items,
    read_messages,
    read_text,
    text,
)
from kedge.node.network.nftables.batch import Batch

_NETFILTER: Final = 12
_SUBSYSTEM: Final = 10
_GET_TABLE, _GET_CHAIN, _GET_ELEMENTS = 1, 4, 13
_REQUEST, _DUMP = 0x1, 0x300
_ERROR, _DONE = 2, 3
_SEND_BUFFER_FORCE, _RECEIVE_BUFFER_FORCE = 32, 33
_BUFFER: Final = 1 << 26
"""A batch is one message: ten thousand endpoints take about 1 MB."""
_ROOM: Final = 1 << 16
_ANY_FAMILY: Final = 0
_FORWARD, _DROP = bytes([0, 0, 0, 2]), bytes(4)
"""The hook and the policy of a chain, as the kernel reports them."""
_HEAD: Final = 4
"""The size of nfgenmsg, which precedes the attributes."""


class ChainName(NamedTuple):
    """A chain of any table of this network namespace."""

    table: str
    chain: str


class NftablesSocket:
    """A socket in a network namespace. A table with the flag OWNER belongs
    to the socket that made it."""

    def __init__(self, namespace: NetworkPlace = MACHINE) -> None:
        self._socket = open_netfilter(namespace)

    def close(self) -> None:
        self._socket.close()

    def apply(self, batch: Batch) -> None:
        """Apply all changes of a batch, or none. Raises OSError with the first error."""
        if not len(batch):
            return
        self._socket.send(batch.packed())
        first = 0
        while True:
            received = self._socket.recv(_ROOM)
            for kind, _, content in read_messages(received):
                if kind == _ERROR:
                    first = first or error_number(content)
                    if not error_number(content):
                        return
            if first and not self._has_more():
                raise OSError(first, os.strerror(first))

    def tables(self, family: int = INET) -> list[str]:
        """Return the names of all tables of a family."""
        return [read_text(each.get(1, b"")) for each in self._dump(_GET_TABLE, family=family)]

    def chains(self) -> list[ChainName]:
        """Return the chains of all IPv4 tables."""
        return [
            ChainName(read_text(each.get(1, b"")), read_text(each.get(3, b"")))
            for each in self._dump(_GET_CHAIN)
        ]

    def dropping_tables(self) -> list[str]:
        """Return the tables of all families that drop forwarded packets unless a rule accepts
        them. No rule of another table can prevent that."""
        return sorted(
            {
                read_text(each.get(1, b""))
                for each in self._dump(_GET_CHAIN, family=_ANY_FAMILY)
                if read_attributes(each.get(4, b"")).get(1) == _FORWARD and each.get(5) == _DROP
            }
        )

    def expirations(self, table: str, name: str) -> dict[bytes, int]:
        """Return the milliseconds that each element of a set with a timeout has left. Raises
        OSError if there is no such set."""
        return {
            key: left
            for part in self._dump(_GET_ELEMENTS, text(1, table) + text(2, name))
            for _, element in read_items(part.get(3, b""))
            for key, left in _read_expiration(read_attributes(element))
        }

    def _dump(self, kind: int, body: bytes = b"", family: int = INET) -> Iterator[dict[int, bytes]]:
        self._socket.send(message(_SUBSYSTEM << 8 | kind, _REQUEST | _DUMP, 0, body, family=family))
        for content in dumped(self._socket):
            yield read_attributes(content[_HEAD:])

    def _has_more(self) -> bool:
        """Whether further errors of the same batch wait to be read. The kernel sends them all
        before the send returns."""
        try:
            self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        return True


def _read_expiration(element: dict[int, bytes]) -> Iterator[tuple[bytes, int]]:
    key = read_attributes(element.get(1, b"")).get(1)
    if key is not None and 5 in element:
        yield key, int.from_bytes(element[5], "big")


def open_netfilter(namespace: NetworkPlace) -> socket.socket:
    made = namespace.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETFILTER)
    for force, plain in (
        (_SEND_BUFFER_FORCE, socket.SO_SNDBUF),
        (_RECEIVE_BUFFER_FORCE, socket.SO_RCVBUF),
    ):
        try:
            made.setsockopt(socket.SOL_SOCKET, force, _BUFFER)
        except OSError:
            # In a user namespace the limit of the machine holds.
            with contextlib.suppress(OSError):
                made.setsockopt(socket.SOL_SOCKET, plain, _BUFFER)
    return made


def dumped(channel: socket.socket) -> Iterator[bytes]:
    """Yield the messages of a dump to its end."""
    while True:
        for kind, _, content in read_messages(channel.recv(_ROOM)):
            if kind == _DONE:
                return
            if kind == _ERROR:
                number = error_number(content)
                raise OSError(number, os.strerror(number))
            yield content


def error_number(content: bytes) -> int:
    code: int = struct.unpack_from("=i", content)[0]
    return -code
