import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kedge.supervisor import supervisor
from kedge.supervisor.kernel.cgroups import Cgroups
from kedge.supervisor.launch.launcher import Launcher
from kedge.supervisor.loop import EventLoop
from kedge.supervisor.machine_capabilities import PLAIN, of_level
from kedge.supervisor.supervisor import PROTOCOL, Supervisor


class Call:
    def __init__(self) -> None:
        self.answers: list[Any] = []

    def answer(self, result: Any = None) -> None:
        self.answers.append(result)


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    """A launcher without a process."""
    sockets = [*socket.socketpair(), *socket.socketpair()]
    made = Launcher(sockets[0], sockets[2], 0)
    yield made
    for each in sockets:
        each.close()


@pytest.fixture
def running(tmp_path: Path, event_loop: EventLoop, launcher: Launcher) -> Supervisor:
    made = Supervisor(str(tmp_path), event_loop, launcher, of_level(PLAIN), Cgroups([]), -1)
    event_loop._children.pop(0)
    return made


def test_an_agent_learns_protocol_and_level(running: Supervisor) -> None:
    call: Any = Call()
    running._hello(call)
    assert call.answers == [
        {
            "protocol": PROTOCOL,
            "level": "plain",
            "pid": os.getpid(),
            "capabilities": of_level(PLAIN).document(),
            "cgroups": [],
            "no_user_namespaces": (
                "it takes root, because the kernel shows files with other owners only to the owner"
                " of their file system, and this node has the level plain"
            ),
            "network": "machine",
        }
    ]
    running._listener.close()


def test_everything_ends_once(running: Supervisor, event_loop: EventLoop, tmp_path: Path) -> None:
    ended: list[str] = []

    def close(done: Any) -> None:
        ended.append("closed")
        done()

    sandbox: Any = SimpleNamespace(id="s1", close=close)
    running._registry.sandboxes["s1"] = sandbox

    def done() -> None:
        ended.append("done")
        event_loop.after(0.01, event_loop.stop)

    running.end_everything(done)
    event_loop.run()
    assert ended == ["closed", "done"]
    assert not (tmp_path / "supervisor.sock").exists()


def test_a_shutdown_is_answered_after_the_end(running: Supervisor, event_loop: EventLoop) -> None:
    call: Any = Call()
    running._shutdown(call)
    assert call.answers == []
    event_loop.run()
    assert call.answers == [None]


def test_signals_of_a_terminal_are_ignored() -> None:
    numbers = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
    before = [signal.getsignal(number) for number in numbers]
    try:
        supervisor.ignore_signals()
        assert {signal.getsignal(number) for number in numbers} == {signal.SIG_IGN}
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
