import errno
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NoReturn

import pytest

from kedge.supervisor.kernel import processes


def test_a_process_is_known_by_its_number_and_its_beginning() -> None:
    assert processes.began(os.getpid()) > 0
    assert processes.began(1 << 30) == 0


def test_nobody_belongs_to_a_session_without_a_leader() -> None:
    assert processes.session(0) == []


def test_a_tree_ends_as_a_whole() -> None:
    script = "sleep 1000 & setsid sleep 1001 & echo ready; wait"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        everyone = processes.tree(shell.pid)
        assert len(everyone) == 3
        processes.kill_tree(shell.pid)
        assert shell.wait() == -9
        # The pipe ends only when the last of those who have it does.
        assert shell.stdout.read() == b""


def test_a_tree_is_searched_task_by_task_up_to_a_number() -> None:
    with subprocess.Popen(
        ["sh", "-c", "sleep 60 & sleep 61 & echo ready; wait"], stdout=subprocess.PIPE
    ) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        assert processes.task_tree(shell.pid, 100).tasks == 3
        # The first task tells of the others.
        found, tasks = processes.task_tree(shell.pid, 1)
        assert (len(found), tasks) == (3, 1)
        processes.kill_tree(shell.pid)


@pytest.fixture
def leader() -> Iterator["subprocess.Popen[str]"]:
    """The first process of a session, with another one in it whose pid it tells."""
    with subprocess.Popen(
        ["sh", "-c", "sleep 60 >/dev/null & echo $!; read line"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as started:
        yield started
        processes.kill(processes.session(started.pid))


def told(leader: "subprocess.Popen[str]") -> int:
    assert leader.stdout is not None
    return int(leader.stdout.readline())


def test_a_stranger_who_has_got_the_pid_is_left_alone(leader: "subprocess.Popen[str]") -> None:
    other = told(leader)
    birth = processes.began(leader.pid)
    processes.kill_remains(leader.pid, birth - 1, with_session=True)
    assert leader.poll() is None
    assert other in processes.session(leader.pid)


def test_what_is_left_of_a_session_is_killed(leader: "subprocess.Popen[str]") -> None:
    other = told(leader)
    birth = processes.began(leader.pid)
    leader.communicate("")
    assert processes.began(leader.pid) == 0
    watched = os.pidfd_open(other)
    processes.kill_remains(leader.pid, birth, with_session=True)
    ended = select.poll()
    ended.register(watched, select.POLLIN)
    assert ended.poll(5_000)
    os.close(watched)


def test_a_kernel_without_boot_ids_is_told_apart_by_the_time_of_its_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of gVisor."""
    (tmp_path / "stat").write_text("cpu 1 2 3\nbtime 1794957000\nprocesses 4\n")

    def opened(path: str) -> IO[str]:
        if path != "/proc/stat":
            raise FileNotFoundError(path)
        return (tmp_path / "stat").open()

    monkeypatch.setattr(processes, "open", opened, raising=False)
    assert processes.boot() == "btime 1794957000"


@pytest.fixture(params=["pidfds", "none"])
def _kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel with pidfds, and one without."""

    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    if request.param == "none":
        monkeypatch.setattr(os, "pidfd_open", refuse)
        monkeypatch.setattr(signal, "pidfd_send_signal", refuse)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.usefixtures("_kernel")
def test_a_process_gets_signals_until_its_end(sleeper: subprocess.Popen[bytes]) -> None:
    handle = processes.open_process(sleeper.pid)
    try:
        processes.send_signal(handle, sleeper.pid, signal.SIGTERM)
        assert sleeper.wait() == -signal.SIGTERM
        with pytest.raises(ProcessLookupError):
            processes.send_signal(handle, sleeper.pid, signal.SIGTERM)
    finally:
        os.close(handle)


@pytest.mark.usefixtures("_kernel")
def test_a_handle_signals_no_other_process_with_the_same_pid(
    sleeper: subprocess.Popen[bytes],
) -> None:
    handle = processes.open_process(sleeper.pid)
    sleeper.kill()
    sleeper.wait()
    try:
        # As if this process had got the pid meanwhile.
        with pytest.raises(ProcessLookupError):
            processes.send_signal(handle, os.getpid(), signal.SIGKILL)
    finally:
        os.close(handle)


@pytest.mark.usefixtures("_kernel")
def test_a_process_that_has_ended_has_no_handle(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    sleeper.wait()
    with pytest.raises(ProcessLookupError):
        processes.open_process(sleeper.pid)
