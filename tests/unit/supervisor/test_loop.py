from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from kedge.supervisor.kernel import processes
from kedge.supervisor.loop import READABLE, EventLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    yield EventLoop()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def child(loop: EventLoop, told: list[str]) -> int:
    """One that does not end by itself."""
    pid = os.posix_spawnp("sleep", ["sleep", "1000"], os.environ)
    loop.child(pid, lambda *_: told.append("ended"))
    return pid


def farewell(loop: EventLoop, told: list[str]) -> Callable[[], None]:
    def say() -> None:
        told.append("alone")
        loop.stop()

    return say


def test_who_waits_to_be_alone_waits_for_children(loop: EventLoop) -> None:
    told: list[str] = []
    pid = child(loop, told)
    assert loop.children == [pid]
    processes.kill(loop.children)
    loop.when_alone(farewell(loop, told), 60)
    loop.run()
    assert told == ["ended", "alone"]
    assert loop.children == []


def test_who_has_no_children_is_alone(loop: EventLoop) -> None:
    told: list[str] = []
    loop.when_alone(farewell(loop, told), 60)
    loop.run()
    assert told == ["alone"]


def test_nobody_waits_for_ever(loop: EventLoop) -> None:
    told: list[str] = []
    pid = child(loop, told)
    loop.when_alone(farewell(loop, told), 0)
    loop.run()
    assert told == ["alone"]
    processes.kill([pid])
    os.waitpid(pid, 0)


def test_a_child_may_be_announced_after_it_has_ended(loop: EventLoop) -> None:
    told: list[str] = []
    read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    pid = os.posix_spawnp("true", ["true"], os.environ)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    def announced() -> None:
        loop.off(read)
        # It can still be held: it is not reaped before it is known whose it is.
        os.close(os.pidfd_open(pid))
        loop.child(pid, lambda *_: told.append("ended"))

    loop.on(read, READABLE, announced)
    loop.announcing(read)
    os.write(write, b"1")
    loop._reap()
    os.close(read)
    os.close(write)
    assert told == ["ended"]
