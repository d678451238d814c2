import os
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
        os.waitpid(started.pid, 0)


def test_the_end_of_the_launcher_is_an_error() -> None:
    started = launcher.start_launcher({})
    os.kill(started.pid, signal.SIGKILL)
    os.waitpid(started.pid, 0)
    with pytest.raises(OSError, match=r"launcher of containers is gone|Broken pipe"):
        started.fork("none", (), [])
    started.close()
