"""What processes on their way into a container report to the supervisor, and who is believed.

The last process on that way is seen by the container before it executes its program. One with
CAP_SYS_PTRACE can take the socket out of it (pidfd_getfd) and speak in its name. A report
from there must not lead to another process or descriptor: if a container could report a process of
the machine as its own, the next command would run on the machine.
"""

import array
import json
import os
import socket
import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kedge.supervisor.loop import READABLE, Loop

_MOST_BYTES: Final = 65_536
_MOST_REPORTS: Final = 64
"""Of one start. An honest one has a few notes; endless ones would keep the supervisor's only
thread."""
_CREDENTIALS: Final = struct.Struct("3i")
_MOST_DESCRIPTORS: Final = 4
_ANCILLARY: Final = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(4 * _MOST_DESCRIPTORS)
_FORGED: Final = "a process of the container speaks in the name of the one that starts it"


class Report(NamedTuple):
    """One message; the fields that are not in it are empty."""

    note: str = ""
    error: str = ""
    is_ready: bool = False
    pid: int = 0
    """The process that goes on in a pid namespace that others are in."""
    terminal: int = -1
    """The controlling side of a terminal, now ours to close."""


def pair() -> tuple[socket.socket, socket.socket]:
    """Return our end and the child's. The kernel names the sender of each message by its pid in our
    namespace. A sender cannot claim the pid of a process outside of its own namespace."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    ours.setblocking(False)
    return ours, theirs


class Reports:
    """The supervisor's end, from the fork until the program is executed or is known not to be."""

    def __init__(
        self,
        loop: Loop,
        connection: socket.socket,
        forked: int,
        *,
        heard: Callable[[Report], None],
        ended: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._connection: socket.socket | None = connection
        self._forked = forked
        """The process that was forked, which no container sees: it alone is believed about other
        processes and descriptors."""
        self._heard = heard
        self._ended = ended
        self._count = 0
        loop.on(connection.fileno(), READABLE, self.listen)
        # In a pid namespace that is shared, the process that stays there is another one.
        loop.announcing(connection.fileno())

    def listen(self) -> None:
        """Hear what there is to hear now."""
        while self._connection is not None:
            try:
                content, ancillary, _, _ = self._connection.recvmsg(_MOST_BYTES, _ANCILLARY)
            except BlockingIOError:
                return
            except OSError:
                content, ancillary = b"", []
            sender, descriptors = _unwrapped(ancillary)
            if not content:
                _close(descriptors)
                self.close()
                return
            self._count += 1
            report = parse(content, descriptors, is_trusted=sender == self._forked)
            if report is None or self._count > _MOST_REPORTS:
                report = Report(error=_FORGED)
            _close(set(descriptors) - {report.terminal})
            self._heard(report)
            if report.error == _FORGED:
                self.close()

    def close(self) -> None:
        """Hear no more. A process that has not executed its program by then ends."""
        if self._connection is None:
            return
        self._loop.off(self._connection.fileno())
        self._connection.close()
        self._connection = None
        self._ended()


def parse(content: bytes, descriptors: list[int], *, is_trusted: bool) -> Report | None:
    """Return what a message says; None if such a message is not expected from its sender."""
    try:
        message = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or len(message) != 1:
        return None
    match message:
        case {"note": str(text)}:
            return Report(note=text)
        case {"error": str(text)}:
            return Report(error=text)
        case {"ready": True}:
            return Report(is_ready=True)
        case {"pid": int(pid)} if is_trusted:
            return Report(pid=pid)
        case {"terminal": True} if is_trusted and len(descriptors) == 1:
            return Report(terminal=descriptors[0])
    return None


def _unwrapped(ancillary: list[tuple[int, int, Any]]) -> tuple[int, list[int]]:
    """The sender's pid, 0 if unknown, and the descriptors that came along."""
    sender, descriptors = 0, array.array("i")
    for level, kind, data in ancillary:
        if level != socket.SOL_SOCKET:
            continue
        if kind == socket.SCM_CREDENTIALS:
            sender = _CREDENTIALS.unpack(data)[0]
        elif kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return sender, list(descriptors)


def _close(descriptors: set[int] | list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
