"""Messages between the node agent and the supervisor: JSON in packets, with file descriptors.

A message that does not fit into a packet is sent as the descriptor of a memory file.
"""

import array
import json
import os
import socket
from collections.abc import Sequence
from typing import Any, Final

Document = dict[str, Any]

SOCKET: Final = "supervisor.sock"
LARGE: Final = 48 << 10
"""Bytes from which on a message is sent as a file; socket buffers of any kernel hold this much."""
_MOST_DESCRIPTORS: Final = 32
_BY_FILE: Final = b"file"


class PeerClosed(Exception):
    """The peer has closed the connection."""


def address(directory: int) -> str:
    """Return the path of the socket in an open directory; such paths have at most 107 bytes."""
    return f"/proc/self/fd/{directory}/{SOCKET}"


def packet(message: Document, descriptors: Sequence[int] = ()) -> tuple[bytes, list[int]]:
    """Return the bytes and descriptors to send for a message; see `let_go`."""
    return wrapped(json.dumps(message, separators=(",", ":")).encode(), descriptors)


def wrapped(content: bytes, descriptors: Sequence[int]) -> tuple[bytes, list[int]]:
    """The same for content of any kind."""
    if len(content) < LARGE:
        return content, list(descriptors)
    file = os.memfd_create("kedge-message")
    with open(file, "wb", closefd=False) as whole:
        whole.write(content)
    return _BY_FILE, [file, *descriptors]


def post(connection: socket.socket, content: bytes, descriptors: Sequence[int]) -> None:
    """Send a packet; BlockingIOError if it must wait."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
    connection.sendmsg([content], rights if descriptors else [], socket.MSG_NOSIGNAL)


def let_go(content: bytes, descriptors: Sequence[int]) -> None:
    """Close the memory file of a packet, if it has one."""
    if content == _BY_FILE:
        os.close(descriptors[0])


def take(connection: socket.socket) -> tuple[Document, list[int]]:
    """Return the next message and its descriptors; raises BlockingIOError if there is none yet."""
    content, received = unwrapped(connection)
    message: Document = json.loads(content)
    return message, received


def unwrapped(connection: socket.socket) -> tuple[bytes, list[int]]:
    """The same for content of any kind."""
    room = socket.CMSG_SPACE(_MOST_DESCRIPTORS * 4)
    content, rights, _, _ = connection.recvmsg(LARGE, room, socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for level, kind, data in rights:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    received = list(descriptors)
    if not content:
        raise PeerClosed
    if content == _BY_FILE:
        with open(received.pop(0), "rb") as whole:
            whole.seek(0)
            content = whole.read()
    return content, received
