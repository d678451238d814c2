"""The process that forks whatever becomes part of a container; it holds nothing of any pod.

A process that enters a container is seen there before it executes its program, and a container with
CAP_SYS_PTRACE can read the memory of what it sees. A fork of the supervisor would show it the
variables of every other pod. So the supervisor begins a launcher before it reads the first record,
and has it fork. The children are the supervisor's own all the same.
"""

import marshal
import os
import signal
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NoReturn

from kedge.supervisor import descriptors, libc, wire

Errand = Callable[..., NoReturn]

_REPLY: Final = 4096


class Launcher:
    """The supervisor's end of it."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.pid = pid
        self.closed = False
        self._connection = connection

    def fork(
        self,
        errand: str,
        arguments: tuple[Any, ...],
        given: Iterable[int],
        pid_namespace: int | None,
    ) -> int:
        """Fork a child into another pid namespace (a given one, a new one for -1, or our own) and
        have it run an errand. It gets the given descriptors under the numbers that they have
        here, and no others. Returns its pid."""
        numbers = sorted(set(given) - {-1, 0, 1, 2})
        sent = numbers if pid_namespace in (None, -1) else [*numbers, pid_namespace]
        content = marshal.dumps((errand, arguments, numbers, pid_namespace))
        packet, sent = wire.wrapped(content, sent)
        try:
            wire.post(self._connection, packet, sent)
        finally:
            wire.let_go(packet, sent)
        reply = self._connection.recv(_REPLY)
        if not reply:
            raise OSError(10, "the launcher of containers is gone")
        pid, number, text = marshal.loads(reply)
        if pid < 0:
            raise OSError(number, text)
        return int(pid)

    def close(self) -> None:
        """Let it end."""
        self.closed = True
        self._connection.close()


def begin(errands: Mapping[str, Errand]) -> Launcher:
    """Fork the launcher; to be called while there is nothing in memory that is worth reading."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        try:
            libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
            libc.name_process("kedge-launch")
            descriptors.keep_only({0, 1, 2, theirs.fileno()})
            _serve(theirs, errands)
        finally:
            os._exit(1)
    theirs.close()
    return Launcher(ours, pid)


def _serve(connection: socket.socket, errands: Mapping[str, Errand]) -> None:
    home = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    while True:
        try:
            content, received = wire.unwrapped(connection)
        except wire.Closed:
            return
        errand, arguments, numbers, pid_namespace = marshal.loads(content)
        if pid_namespace is not None and pid_namespace >= 0:
            pid_namespace = received[-1]
        try:
            pid, failure = _fork(pid_namespace, home), (0, "")
        except OSError as error:
            pid, failure = -1, (error.errno or 0, error.strerror or str(error))
        if pid == 0:
            descriptors.renumber(dict(zip(numbers, received, strict=False)))
            errands[errand](*arguments)
        for descriptor in received:
            os.close(descriptor)
        connection.send(marshal.dumps((pid, *failure)))


def _fork(pid_namespace: int | None, home: int) -> int:
    if pid_namespace is None:
        return libc.fork_sibling()
    if pid_namespace < 0:
        libc.unshare(libc.NEW_PID)
    else:
        libc.setns(pid_namespace, libc.NEW_PID)
    pid = -1
    try:
        pid = libc.fork_sibling()
    finally:
        if pid:
            # The child itself cannot go back, and need not.
            libc.setns(home, libc.NEW_PID)
    return pid
