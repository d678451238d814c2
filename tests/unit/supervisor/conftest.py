"""Processes with a mount namespace of their own, for tests that mount."""

import os
import signal
import traceback
from collections.abc import Callable, Iterator

import pytest

from kedge.supervisor.kernel import libc
from kedge.supervisor.loop import EventLoop

Apart = Callable[[Callable[[], None]], None]


@pytest.fixture
def apart() -> Apart:
    """Run a function in a child with a private mount namespace; skips without the right to it."""
    if os.geteuid() != 0:
        pytest.skip("mounting takes root")

    def run(test: Callable[[], None]) -> None:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                libc.unshare(libc.NEW_MOUNT)
                libc.mount("", "/", flags=libc.MS_REC | libc.MS_PRIVATE)
                test()
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    return run


@pytest.fixture
def event_loop() -> Iterator[EventLoop]:
    """The supervisor's event loop; signals are as before afterwards."""
    yield EventLoop()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
