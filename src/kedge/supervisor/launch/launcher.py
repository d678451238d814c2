"""The launcher: forks all processes of containers, and holds no data of pods in its memory.

A process that enters a container is visible there before it executes its program, and a
container with CAP_SYS_PTRACE can read its memory. A fork of the supervisor would reveal the
variables of every other pod. So the supervisor forks a launcher before it reads the first
record, and the launcher forks the processes of containers. They are still children of the
supervisor. gVisor leaves them to the launcher, which then tells the supervisor of their ends.
"""

import gc
import marshal
import os
import signal
import socket
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from resource import struct_rusage
from typing import Any, Final, NoReturn

from kedge.supervisor import wire
from kedge.supervisor.kernel import descriptors, libc

EntryPoint = Callable[..., NoReturn]
"""A function that a forked child runs; it ends in execve or exit."""

_REPLY: Final = 4096


class Launcher:
    """The supervisor's side of the launcher."""

    def __init__(self, connection: socket.socket, ends: socket.socket, pid: int) -> None:
        self.pid = pid
        self.closed = False
        self.ends = ends
        """Readable when children that are the launcher's own have ended; its end is that of the
        launcher."""
        self._connection = connection

    def fork(
        self,
        entry_point: str,
        arguments: tuple[Any, ...],
        descriptors: Iterable[int],
        *,
        is_new_pid_namespace: bool = False,
    ) -> int:
        """Fork a child that runs an entry point, in a new pid namespace or in our own. It gets only
        the given descriptors, under the same numbers. Returns its pid."""
        numbers = sorted(set(descriptors) - {-1, 0, 1, 2})
        content = marshal.dumps((entry_point, numbers, is_new_pid_namespace))
        # The launcher must not read the arguments: they would stay in its memory.
        with open(os.memfd_create("kedge-launch"), "wb", buffering=0) as file:
            file.write(marshal.dumps(arguments))
            wire.post(self._connection, content, [file.fileno(), *numbers])
        reply = self._connection.recv(_REPLY)
        if not reply:
            raise OSError(10, "the launcher of containers is gone")
        pid, number, text = marshal.loads(reply)
        if pid < 0:
            raise OSError(number, text)
        return int(pid)

    def read_ends(self) -> list[tuple[int, int, struct_rusage]]:
        """Return the pid, the wait status and the resource usage of each child that has ended; none
        after the end of the launcher."""
        found: list[tuple[int, int, struct_rusage]] = []
        while True:
            try:
                message = self.ends.recv(_REPLY, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return found
            if not message:
                return found
            pid, status, usage = marshal.loads(message)
            found.append((pid, status, struct_rusage(usage)))

    def close(self) -> None:
        """End the launcher."""
        self.closed = True
        self._connection.close()


def start_launcher(entry_points: Mapping[str, EntryPoint]) -> Launcher:
    """Fork the launcher; call it before any secret is in memory."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    our_ends, their_ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        try:
            libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
            libc.name_process("kedge-launch")
            descriptors.keep_only({0, 1, 2, theirs.fileno(), their_ends.fileno()})
            signal.signal(signal.SIGCHLD, partial(_tell_ends, their_ends))
            # Children live too shortly for garbage collection, which would copy every page.
            gc.freeze()
            gc.disable()
            _serve(theirs, entry_points)
        finally:
            os._exit(1)
    theirs.close()
    their_ends.close()
    return Launcher(ours, our_ends, pid)


def _tell_ends(ends: socket.socket, *_: object) -> None:
    """Reap the children that the kernel did not give to the supervisor, and tell it."""
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        ends.send(marshal.dumps((pid, status, tuple(usage))))


def _serve(connection: socket.socket, entry_points: Mapping[str, EntryPoint]) -> None:
    home = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    while True:
        try:
            content, (file, *received) = wire.unwrapped(connection)
        except wire.PeerClosed:
            return
        entry_point, numbers, is_new_pid_namespace = marshal.loads(content)
        try:
            pid = _fork_into_new(home) if is_new_pid_namespace else libc.fork_sibling()
            failure = (0, "")
        except OSError as error:
            pid, failure = -1, (error.errno or 0, error.strerror or str(error))
        if pid == 0:
            # It may have children of its own, and waits for them itself.
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            arguments = _arguments(file)
            descriptors.renumber(dict(zip(numbers, received, strict=True)))
            entry_points[entry_point](*arguments)
        for descriptor in (file, *received):
            os.close(descriptor)
        connection.send(marshal.dumps((pid, *failure)))


def _arguments(file: int) -> tuple[Any, ...]:
    with open(file, "rb", closefd=False) as whole:
        whole.seek(0)
        arguments: tuple[Any, ...] = marshal.load(whole)
    return arguments


def _fork_into_new(home: int) -> int:
    """Fork a child that is the first process of a new pid namespace."""
    libc.unshare(libc.NEW_PID)
    pid = -1
    try:
        pid = libc.fork_sibling()
    finally:
        if pid:
            # Only this process returns to its own namespace; the child stays in the new one.
            libc.setns(home, libc.NEW_PID)
    return pid
