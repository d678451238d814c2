import os
import select
import signal
from typing import NoReturn

import pytest

from kedge.supervisor.kernel import libc
from kedge.supervisor.launch import launcher


def write_and_exit(descriptor: int, text: str) -> NoReturn:
    os.write(descriptor, f"{text} {sorted(map(int, os.listdir('/proc/self/fd')))[:3]}".encode())
    os._exit(7)


@pytest.mark.skipif("clone" not in libc._OLD, reason="the number of clone is not known here")
def test_a_child_gets_arguments_and_descriptors_and_is_ours() -> None:
    started = launcher.start_launcher({"write": write_and_exit})
    read, write = os.pipe()
    try:
        pid = started.fork("write", (write, "hello"), [write])
        os.close(write)
        assert os.read(read, 100) == b"hello [0, 1, 2]"
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    finally:
        os.close(read)
        started.close()
        started.ends.close()
        os.waitpid(started.pid, 0)


def wait_for_own_child(descriptor: int) -> NoReturn:
    child = os.fork()
    if child == 0:
        os._exit(5)
    # The child has ended when this process is told so.
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    os.write(descriptor, b"%d" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    os._exit(0)


@pytest.mark.skipif("clone" not in libc._OLD, reason="the number of clone is not known here")
def test_a_child_waits_for_its_own_children() -> None:
    started = launcher.start_launcher({"wait": wait_for_own_child})
    read, write = os.pipe()
    try:
        pid = started.fork("wait", (write,), [write])
        os.close(write)
        assert os.read(read, 100) == b"5"
        os.waitpid(pid, 0)
    finally:
        os.close(read)
        started.close()
        started.ends.close()
        os.waitpid(started.pid, 0)


def test_the_end_of_the_launcher_is_an_error() -> None:
    started = launcher.start_launcher({})
    os.kill(started.pid, signal.SIGKILL)
    os.waitpid(started.pid, 0)
    with pytest.raises(OSError, match=r"launcher of containers is gone|Broken pipe"):
        started.fork("none", (), [])
    started.close()
    started.ends.close()


def test_ends_of_children_that_the_kernel_leaves_to_the_launcher_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As on gVisor, where CLONE_PARENT has no effect.
    monkeypatch.setattr(libc, "fork_sibling", os.fork)
    started = launcher.start_launcher({"write": write_and_exit})
    read, write = os.pipe()
    try:
        pid = started.fork("write", (write, "hello"), [write])
        poll = select.poll()
        poll.register(started.ends.fileno(), select.POLLIN)
        assert poll.poll(20_000)
        [(ended, status, usage)] = started.read_ends()
        assert (ended, os.waitstatus_to_exitcode(status)) == (pid, 7)
        assert usage.ru_maxrss > 0
        assert started.read_ends() == []
    finally:
        os.close(read)
        os.close(write)
        started.close()
        started.ends.close()
        os.waitpid(started.pid, 0)
