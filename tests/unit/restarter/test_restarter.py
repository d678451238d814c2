"""The parent of a cluster's programs, with small programs in the place of a server."""

import errno
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from kedge.cli.cluster import process, restarts
from kedge.cli.cluster.children import ProgramSpec, launching
from kedge.cli.failure import AlreadyRunning, Failure
from kedge.restarter import restarter
from kedge.restarter.program import Program, make_room, tail
from kedge.restarter.restarter import PART

PROGRAM = """
import os, signal, sys
from pathlib import Path
place = Path(sys.argv[1])
flags = dict(word.split("=", 1) for word in sys.argv[2:])
with open(place / "starts", "a") as file:
    file.write(f"{os.getpid()} {os.environ.get('KEDGE_RESTART_REASON', '-')}\\n")
(place / "open").write_text(" ".join(os.listdir("/proc/self/fd")))
MANNER
os.write(int(flags["--ready-fd"]), b"ready\\n")
signal.pause()
"""


class Cluster:
    """A directory, and one program that runs for it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "cluster.json").write_text("{}")

    def program(self, manner: str = "") -> Program:
        words = [sys.executable, "-c", PROGRAM.replace("MANNER", manner), str(self.directory)]
        return Program("the server", words, str(self.directory / "server.log"))

    def part(self, program: Program) -> ProgramSpec:
        return ProgramSpec("server", program.what, program.arguments, ["server"], program.log)

    def start(self, program: Program, policy: str = "always") -> None:
        with launching(self.directory, {"server": program}) as launch:
            launch.children["server"].line(20)
            launch.keep([self.part(program)], policy)

    def starts(self) -> list[tuple[int, str]]:
        file = self.directory / "starts"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(int(pid), why) for pid, _, why in (line.partition(" ") for line in lines)]

    def state(self) -> str:
        known = restarts.read(self.directory)
        return known.parts[0].state if known else ""

    @property
    def parent(self) -> int:
        found = restarts.running(self.directory)
        return found.pid if found else 0


def until(condition: Callable[[], object]) -> None:
    """Wait; the timeout of the test ends what never comes."""
    while not condition():
        os.sched_yield()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path)
    yield found
    restarts.stop(tmp_path)
    for pid, _ in found.starts():
        if process.birth(pid):
            os.kill(pid, signal.SIGKILL)


def test_a_program_that_is_killed_is_started_again_and_told_why(cluster: Cluster) -> None:
    cluster.start(cluster.program())
    [(first, why)] = cluster.starts()
    assert why == "-"
    os.kill(first, signal.SIGKILL)
    until(lambda: cluster.state() == "running" and len(cluster.starts()) == 2)
    assert cluster.starts()[1][1] == "was killed by signal 9 (SIGKILL)"
    known = restarts.read(cluster.directory)
    assert known is not None
    assert (known.policy, known.pid) == ("always", cluster.parent)
    assert (known.parts[0].restarts, known.parts[0].pid) == (1, cluster.starts()[1][0])


def test_a_program_that_says_that_it_is_no_use_is_given_up_with_its_last_words(
    cluster: Cluster,
) -> None:
    manner = 'if (place / "broken").exists(): sys.stderr.write("error: broken\\n"); sys.exit(78)'
    cluster.start(cluster.program(manner))
    (cluster.directory / "broken").touch()
    os.kill(cluster.starts()[0][0], signal.SIGKILL)
    until(lambda: cluster.state() == "stopped")
    known = restarts.read(cluster.directory)
    assert known is not None
    assert known.parts[0].reason == "ended with exit code 78: broken"
    assert known.parts[0].last_lines == ("error: broken",)
    assert known.parts[0].why
    # Nothing is left to look after.
    until(lambda: not cluster.parent)


def test_the_parent_leaves_what_is_ready_and_takes_what_is_not(cluster: Cluster) -> None:
    cluster.start(cluster.program('if (place / "slow").exists(): signal.pause()'))
    first = cluster.starts()[0][0]
    restarts.stop(cluster.directory)
    assert process.birth(first)
    assert cluster.parent == 0

    os.kill(first, signal.SIGKILL)
    cluster.start(cluster.program('if (place / "slow").exists(): signal.pause()'))
    (cluster.directory / "slow").touch()
    os.kill(cluster.starts()[1][0], signal.SIGKILL)
    until(lambda: len(cluster.starts()) == 3)
    restarts.stop(cluster.directory)
    assert process.birth(cluster.starts()[2][0]) == ""


def test_a_process_that_another_one_has_started_is_adopted(cluster: Cluster) -> None:
    program = cluster.program()
    cluster.start(program, "never")
    until(lambda: not cluster.parent)
    pid = cluster.starts()[0][0]
    found = process.Process(pid, process.birth(pid))
    with launching(cluster.directory, {}, {"server": found}) as launch:
        launch.keep([cluster.part(program)], "always")
    os.kill(pid, signal.SIGKILL)
    until(lambda: len(cluster.starts()) == 2 and cluster.state() == "running")
    assert "its exit status is not known" in cluster.starts()[1][1]


def test_a_stranger_with_the_pid_of_an_adopted_process_is_not_taken_for_it(
    cluster: Cluster,
) -> None:
    with launching(cluster.directory, {}, {"server": process.Process(os.getpid(), "1")}) as launch:
        launch.keep([cluster.part(cluster.program())], "always")
    until(lambda: cluster.state() == "running" and cluster.starts())


def test_an_adopted_process_is_looked_at_where_the_kernel_has_no_pidfds(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.start(cluster.program(), "never")
    pid = cluster.starts()[0][0]

    def refuse(_: int) -> NoReturn:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(os, "pidfd_open", refuse)
    adopted = restarter.ManagedProgram("server", pid, process.birth(pid))
    assert adopted.is_seen()
    assert not restarter.ManagedProgram("server", pid, "1").is_seen()
    os.kill(pid, signal.SIGKILL)
    until(lambda: not adopted.is_seen())
    assert adopted.status() is None
    assert adopted.birth == ""


class Trouble(Exception):
    """Something that `kedge up` could not do after the start."""


def fail_after_the_start(cluster: Cluster) -> None:
    with launching(cluster.directory, {"server": cluster.program()}) as launch:
        launch.children["server"].line(20)
        raise Trouble


def test_a_start_that_fails_ends_all_that_was_started(cluster: Cluster) -> None:
    with pytest.raises(Trouble):
        fail_after_the_start(cluster)
    assert process.birth(cluster.starts()[0][0]) == ""
    assert cluster.parent == 0


def test_a_program_that_dies_as_it_starts_is_explained(cluster: Cluster) -> None:
    manner = 'sys.exit("error: no")'
    with (
        pytest.raises(Failure, match=r"^no$"),
        launching(cluster.directory, {"server": cluster.program(manner)}) as launch,
    ):
        launch.children["server"].line(20)


def test_there_is_one_parent(cluster: Cluster) -> None:
    cluster.start(cluster.program())
    with (
        pytest.raises(AlreadyRunning),
        launching(cluster.directory, {"server": cluster.program()}) as launch,
    ):
        launch.children["server"].line(20)
    assert len(cluster.starts()) == 1


def test_a_cluster_that_was_deleted_is_not_started_again(cluster: Cluster) -> None:
    cluster.start(cluster.program())
    (cluster.directory / "cluster.json").unlink()
    os.kill(cluster.starts()[0][0], signal.SIGKILL)
    until(lambda: not cluster.parent)
    assert len(cluster.starts()) == 1


def test_what_the_caller_has_open_reaches_no_program(cluster: Cluster) -> None:
    read, write = os.pipe()
    os.set_inheritable(write, True)
    try:
        cluster.start(cluster.program())
    finally:
        os.close(write)
    os.kill(cluster.starts()[0][0], signal.SIGKILL)
    until(lambda: len(cluster.starts()) == 2 and cluster.state() == "running")
    # No other process holds the pipe, so its end is seen.
    assert os.read(read, 1) == b""
    os.close(read)


def test_a_record_of_a_stranger_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"policy": "always", "pid": 1, "parts": []}
    (tmp_path / "restarts.json").write_text(json.dumps(known))
    assert restarts.read(tmp_path) is not None
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert restarts.read(tmp_path) is None


def test_a_record_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "other").write_text('{"policy": "always", "pid": 1, "parts": []}')
    (tmp_path / "restarts.json").symlink_to(tmp_path / "other")
    assert restarts.read(tmp_path) is None


def test_of_a_log_the_last_lines_of_this_run_count(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    begin = make_room(str(log))
    with log.open("a") as file:
        file.write("".join(f"line {number}\n" for number in range(20)))
    assert tail(str(log), begin) == [f"line {number}" for number in range(10, 20)]
    assert tail(str(tmp_path / "none"), 0) == []
    # The program has set its log aside by itself.
    log.write_text("new\n")
    assert tail(str(log), 1000) == ["new"]


def test_only_the_first_crash_may_leave_an_image_of_memory(cluster: Cluster) -> None:
    manner = (
        "import resource\n"
        'with open(place / "limits", "a") as file:\n'
        "    print(resource.getrlimit(resource.RLIMIT_CORE)[0], file=file)"
    )
    limits = resource.getrlimit(resource.RLIMIT_CORE)
    if not limits[1]:
        pytest.skip("core files are switched off for good here")
    resource.setrlimit(resource.RLIMIT_CORE, (limits[1], limits[1]))
    try:
        cluster.start(cluster.program(manner))
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, limits)
    os.kill(cluster.starts()[0][0], signal.SIGKILL)
    until(lambda: cluster.state() == "running" and len(cluster.starts()) == 2)
    assert (cluster.directory / "limits").read_text().split() == [str(limits[1]), "0"]


def test_a_record_that_is_taken_in_parts_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a disk that is nearly full."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda number, data: write(number, data[:3]))
    directory = os.open(tmp_path, os.O_RDONLY)
    restarter.write("record", b"0123456789", directory)
    os.close(directory)
    assert (tmp_path / "record").read_bytes() == b"0123456789"


def test_the_log_of_the_parent_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarter, "LOG_LIMIT", 1000)
    with (tmp_path / "log").open("a") as log:
        monkeypatch.setattr(sys, "stderr", log)
        for number in range(100):
            restarter.note(f"line {number}")
    content = (tmp_path / "log").read_text()
    assert len(content) < 1100
    assert content.endswith("line 99\n")


def test_a_parent_that_dies_before_it_knows_all_is_no_success(cluster: Cluster) -> None:
    program = cluster.program()
    with launching(cluster.directory, {"server": program}) as launch:
        launch.children["server"].line(20)
        os.kill(cluster.parent, signal.SIGKILL)
        with pytest.raises(Failure, match="has ended, or does not answer"):
            launch.keep([cluster.part(program)], "always")


def test_the_pid_file_is_called_after_the_part() -> None:
    assert PART == "restarter"
