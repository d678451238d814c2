"""Who runs a cluster, and how it is made to stop."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.cli.cluster import process
from kedge.cli.failure import Failure

HOLDER = """
import signal, sys
from pathlib import Path
from kedge.cli.cluster import process
if sys.argv[2] == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
process.claim(Path(sys.argv[1]))
print("claimed", flush=True)
signal.pause()
"""

Child = subprocess.Popen[str]


def start(state: Path, manner: str) -> Child:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(state), manner], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "claimed\n"
    return child


def end(child: Child) -> None:
    child.kill()
    child.communicate()


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[Child]:
    child = start(tmp_path, "willing")
    yield child
    end(child)


def test_nobody_runs_a_cluster_that_was_never_started(tmp_path: Path) -> None:
    assert process.running(tmp_path) is None


def test_the_process_that_claimed_the_cluster_runs_it(tmp_path: Path, holder: Child) -> None:
    found = process.running(tmp_path)
    assert found is not None
    assert found.pid == holder.pid
    assert found.lives()


def test_a_cluster_is_claimed_by_one_process_only(tmp_path: Path, holder: Child) -> None:
    with pytest.raises(Failure, match="already running"):
        process.claim(tmp_path)


def test_a_killed_process_leaves_the_cluster_free(tmp_path: Path, holder: Child) -> None:
    holder.kill()
    holder.wait()
    assert process.running(tmp_path) is None
    end(start(tmp_path, "willing"))


def test_a_pid_file_without_its_process_means_nothing(tmp_path: Path) -> None:
    """Not even if the pid is that of a living process: ours."""
    (tmp_path / "server.pid").write_text(f"{os.getpid()} {process.birth(os.getpid())}\n")
    assert process.running(tmp_path) is None


def test_a_stranger_with_the_same_pid_is_not_stopped() -> None:
    with pytest.raises(Failure, match="cannot be seen from here"):
        process.stop(process.Process(os.getpid(), "12345"), grace=1.0)


def test_a_process_that_ends_when_asked_is_not_killed(tmp_path: Path, holder: Child) -> None:
    found = process.running(tmp_path)
    assert found is not None
    assert process.stop(found, grace=10.0) is False
    assert holder.wait() == -signal.SIGTERM


def test_a_process_that_will_not_end_is_killed(tmp_path: Path) -> None:
    deaf = start(tmp_path, "deaf")
    found = process.running(tmp_path)
    assert found is not None
    assert process.stop(found, grace=0.02) is True
    assert deaf.wait() == -signal.SIGKILL
    end(deaf)


def test_a_pid_whose_process_does_not_hold_the_file_is_not_believed(tmp_path: Path) -> None:
    """A user who can write the file could choose the process to stop."""
    liar = start(tmp_path, "willing")
    victim = os.getppid()
    (tmp_path / "server.pid").write_text(f"{victim} {process.birth(victim)}\n")
    found = process.running(tmp_path)
    end(liar)
    assert found == process.Process(0, "")
    with pytest.raises(Failure, match="cannot be seen from here"):
        process.stop(found, grace=1.0)


def test_a_link_in_place_of_a_pid_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").touch()
    (tmp_path / "server.pid").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Failure, match=r"server\.pid cannot be used"):
        process.running(tmp_path)


def test_a_killed_process_is_ending_before_it_is_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    found = process.Process(child.pid, process.birth(child.pid))
    assert not process.is_ending(found)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert process.is_ending(found)
    child.wait()
    assert process.is_ending(found)
