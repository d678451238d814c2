"""Reports to the supervisor from processes that start in a container, and which senders to trust.

In a shared pid namespace, containers see the starting process before it executes its program. A
container with CAP_SYS_PTRACE can take its socket (pidfd_getfd) and send reports in its name. Such a
report must not introduce another process or descriptor: if a container could report a process of
the machine as its own, the next `kubectl exec` would run on the machine.
"""

import array
import json
import os
import socket
import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kedge.supervisor.loop import READABLE, EventLoop

_MAX_BYTES: Final = 65_536
_MAX_REPORTS: Final = 64
"""Limit per start. An honest process sends a few; endless reports would occupy the supervisor's
only thread."""
_CREDENTIALS: Final = struct.Struct("3i")
_MAX_DESCRIPTORS: Final = 4
_ANCILLARY: Final = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(4 * _MAX_DESCRIPTORS)
_FORGED: Final = "a process of the container speaks in the name of the one that starts it"


class LaunchReport(NamedTuple):
    """One message; fields that it lacks are empty."""

    note: str = ""
    error: str = ""
    is_ready: bool = False
    pid: int = 0
    """The process that continues in a shared pid namespace."""
    terminal: int = -1
    """The controlling side of a terminal, which the receiver closes."""


def pair() -> tuple[socket.socket, socket.socket]:
    """Return our end and the child's. The kernel names the sender of each message by its pid in our
    namespace. A sender cannot claim the pid of a process outside of its own namespace."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    ours.setblocking(False)
    return ours, theirs


class LaunchReports:
    """The supervisor's end of the socket, from the fork until execve or failure."""

    def __init__(
        self,
        loop: EventLoop,
        connection: socket.socket,
        forked: int,
        *,
        heard: Callable[[LaunchReport], None],
        ended: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._connection: socket.socket | None = connection
        self._forked = forked
        """The forked process, which no container sees: only its reports about other processes and
        descriptors are accepted."""
        self._heard = heard
        self._ended = ended
        self._count = 0
        loop.on(connection.fileno(), READABLE, self.listen)
        # In a shared pid namespace, a second process stays, whose pid is reported.
        loop.announcing(connection.fileno())

    def listen(self) -> None:
        """Handle the reports that have arrived."""
        while self._connection is not None:
            try:
                content, ancillary, _, _ = self._connection.recvmsg(_MAX_BYTES, _ANCILLARY)
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
            if report is None or self._count > _MAX_REPORTS:
                report = LaunchReport(error=_FORGED)
            _close(set(descriptors) - {report.terminal})
            self._heard(report)
            if report.error == _FORGED:
                self.close()

    def close(self) -> None:
        """Stop listening. A process that has not executed its program by then exits."""
        if self._connection is None:
            return
        self._loop.off(self._connection.fileno())
        self._connection.close()
        self._connection = None
        self._ended()


def parse(content: bytes, descriptors: list[int], *, is_trusted: bool) -> LaunchReport | None:
    """Return the content of a message; None if its sender may not send it."""
    try:
        message = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or len(message) != 1:
        return None
    match message:
        case {"note": str(text)}:
            return LaunchReport(note=text)
        case {"error": str(text)}:
            return LaunchReport(error=text)
        case {"ready": True}:
            return LaunchReport(is_ready=True)
        case {"pid": int(pid)} if is_trusted:
            return LaunchReport(pid=pid)
        case {"terminal": True} if is_trusted and len(descriptors) == 1:
            return LaunchReport(terminal=descriptors[0])
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
