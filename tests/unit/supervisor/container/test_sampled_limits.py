"""Limits of containers without control groups."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kedge.supervisor.container import sampled_limits as module
from kedge.supervisor.container.sampled_limits import (
    SampledLimits,
    SampledUsage,
    bytes_of_files,
    excess,
    pause,
    places_in_memory,
    proportional,
    resident,
)
from kedge.supervisor.loop import EventLoop, Timer
from kedge.supervisor.machine_capabilities import KERNEL, USERNS, of_level

MEBIBYTE = 1 << 20
MACHINE = of_level(USERNS)


class FakeLoop(EventLoop):
    """Keeps its timers, for the test to call."""

    def __init__(self) -> None:
        self.due: list[tuple[float, Callable[[], object]]] = []

    def after(self, seconds: float, callback: Callable[[], object]) -> Timer:
        self.due.append((seconds, callback))
        return Timer(0, 0, callback)

    def turn(self) -> float:
        """Call the next timer, and return the seconds until the one after it."""
        self.due.pop(0)[1]()
        return self.due[0][0] if self.due else 0


class FakeContainer:
    """A container around a process of the test."""

    def __init__(self, pid: int, **resources: Any) -> None:
        self.pid = pid
        self.alive = True
        self.written_places: list[str] = []
        self.command_pids: set[int] = set()
        self.resources = resources
        self.ended: list[tuple[str, str]] = []

    def exceed(self, reason: str, message: str) -> None:
        self.ended.append((reason, message))
        self.alive = False


@pytest.fixture
def child() -> Iterator[int]:
    """A process with 30 MiB of its own memory and 10 MiB of shared memory."""
    code = (
        "import mmap, sys; x = bytearray(b'x' * (30 << 20)); m = mmap.mmap(-1, 10 << 20);"
        "m.write(b'x' * (10 << 20)); print('up', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid


def test_memory_of_a_process_includes_what_it_shares(child: int) -> None:
    for measured in (resident(child), proportional(child)):
        assert 40 * MEBIBYTE <= measured < 80 * MEBIBYTE


FORKED = """
import os, sys
x = bytearray(b"x" * (64 << 20))
pid = os.fork()
if pid:
    print(os.getpid(), pid, flush=True)
sys.stdin.read()
"""


def test_pages_that_forked_processes_share_count_once_if_measured_exactly() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FORKED], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        pids = [int(each) for each in process.stdout.readline().split()]
        assert sum(map(resident, pids)) >= 128 * MEBIBYTE
        assert 64 * MEBIBYTE <= sum(map(proportional, pids)) < 96 * MEBIBYTE


def test_a_process_that_has_ended_uses_no_memory() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert resident(process.pid) == proportional(process.pid) == 0


def test_a_container_above_its_memory_limit_ends_with_the_figures(child: int) -> None:
    loop, container = FakeLoop(), FakeContainer(child, memory_limit=20 * MEBIBYTE)
    SampledLimits(loop, MACHINE).follow(container)
    loop.turn()
    [(reason, message)] = container.ended
    assert reason == "OOMKilled"
    assert message.endswith(f"bytes of memory; its limit is {20 * MEBIBYTE}")
    assert loop.due == []


def test_commands_in_a_container_count(child: int) -> None:
    loop, container = FakeLoop(), FakeContainer(os.getpid(), pids_limit=1)
    container.pid = child
    SampledLimits(loop, MACHINE).follow(container)
    loop.turn()
    assert container.ended == []
    container.command_pids.add(child)
    loop.turn()
    assert container.ended == [("Error", "it had 2 processes and threads or more; its limit is 1")]


def test_an_idle_container_is_checked_each_second_and_no_more_after_its_end(child: int) -> None:
    loop, container = FakeLoop(), FakeContainer(child, memory_limit=60 * MEBIBYTE)
    SampledLimits(loop, MACHINE).follow(container)
    pauses = [loop.turn() for _ in range(5)]
    assert pauses[-1] == 1.0
    assert pauses == sorted(pauses)
    container.alive = False
    loop.turn()
    assert loop.due == []


def test_limits_that_the_kernel_enforces_are_not_checked(child: int) -> None:
    loop, container = FakeLoop(), FakeContainer(child, memory_limit=1, pids_limit=0)
    SampledLimits(loop, MACHINE._replace(memory=KERNEL)).follow(container)
    loop.turn()
    assert container.ended == [("Error", "it had 1 processes and threads or more; its limit is 0")]
    SampledLimits(loop, MACHINE._replace(memory=KERNEL, pids=KERNEL)).follow(container)
    assert loop.due == []


def test_a_limit_that_is_set_later_counts(child: int) -> None:
    loop, container = FakeLoop(), FakeContainer(child, memory_limit=-1, pids_limit=None)
    SampledLimits(loop, MACHINE).follow(container)
    assert loop.turn() == 1.0
    container.resources = {"memory_limit": MEBIBYTE}
    loop.turn()
    assert container.ended


@pytest.mark.parametrize(
    ("used", "before", "last", "seconds"),
    [
        (0, 0, 0.1, 0.25),
        (32 * MEBIBYTE, 0, 0.1, 0.125),
        (63 * MEBIBYTE, 0, 0.5, 0.1),
        (63 * MEBIBYTE, 63 * MEBIBYTE, 0.2, 0.4),
        (63 * MEBIBYTE, 63 * MEBIBYTE, 0.8, 1.0),
    ],
)
def test_a_container_near_its_limit_is_checked_more_often(
    used: int, before: int, last: float, seconds: float
) -> None:
    assert pause(64 * MEBIBYTE, SampledUsage(1, used), before, last) == pytest.approx(seconds)


def test_limits_are_not_exceeded_by_reaching_them() -> None:
    assert excess(10, 2, SampledUsage(2, 10, 10)) is None
    assert excess(None, None, SampledUsage(9, 9 << 40, 9 << 40)) is None


THREADS = """
import sys, threading
for _ in range(20):
    threading.Thread(target=sys.stdin.read, daemon=True).start()
print("up", flush=True)
sys.stdin.read()
"""


def test_threads_count_as_processes() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", THREADS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        loop, container = FakeLoop(), FakeContainer(process.pid, pids_limit=10)
        SampledLimits(loop, MACHINE).follow(container)
        loop.turn()
    assert container.ended == [
        ("Error", "it had 11 processes and threads or more; its limit is 10")
    ]


def test_forked_processes_are_measured_a_few_at_a_time(
    child: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SLICE_SECONDS", 0.0)
    measured: list[int] = []

    def slow(pid: int) -> int:
        measured.append(pid)
        return MEBIBYTE

    monkeypatch.setattr(module, "proportional", slow)
    limit = resident(child) + MEBIBYTE
    loop, container = FakeLoop(), FakeContainer(child, memory_limit=limit)
    container.command_pids = {child}
    SampledLimits(loop, MACHINE).follow(container)
    loop.turn()
    assert measured == [child]
    loop.turn()
    assert measured == [child, child]
    assert container.ended == []
    monkeypatch.setattr(module, "proportional", lambda pid: limit)
    while loop.due:
        loop.turn()
    assert container.ended == [
        ("OOMKilled", f"it used {2 * limit} bytes of memory; its limit is {limit}")
    ]


def test_a_container_with_more_processes_than_can_be_measured_ends() -> None:
    usage = SampledUsage(module._MOST_TASKS, 1)
    assert excess(None, None, usage) is None
    found = excess(10, None, usage)
    assert found is not None
    assert found[0] == "Error"


@pytest.fixture
def volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], str]:
    """Pretends to be a volume in memory with so many bytes of files."""

    def holding(size: int) -> str:
        monkeypatch.setattr(module, "_mounts", lambda: f"1 2 0:3 / {tmp_path} rw - tmpfs tmpfs rw")
        monkeypatch.setattr(module, "bytes_of_files", lambda place: size)
        return str(tmp_path)

    return holding


def test_files_in_memory_count(child: int, volume: Callable[[int], str]) -> None:
    loop, container = FakeLoop(), FakeContainer(child, memory_limit=200 * MEBIBYTE)
    container.written_places = ["/elsewhere", volume(190 * MEBIBYTE)]
    SampledLimits(loop, MACHINE).follow(container)
    loop.turn()
    [(reason, _)] = container.ended
    assert reason == "OOMKilled"


def test_files_of_a_shared_volume_count_in_equal_parts(
    child: int, volume: Callable[[int], str]
) -> None:
    loop, place = FakeLoop(), volume(190 * MEBIBYTE)
    limits = SampledLimits(loop, MACHINE)
    pair = [FakeContainer(child, memory_limit=200 * MEBIBYTE) for _ in range(2)]
    for each in pair:
        each.written_places = [place]
        limits.follow(each)
    for _ in range(6):
        loop.turn()
    assert [each.ended for each in pair] == [[], []]
    # The other one has ended: all files are those of the first.
    pair[1].alive = False
    while loop.due:
        loop.turn()
    assert [reason for reason, _ in pair[0].ended] == ["OOMKilled"]
    assert limits._writers == {}


def test_a_file_in_memory_that_is_mapped_counts_once(volume: Callable[[int], str]) -> None:
    """Such pages are shared memory of the process too."""
    code = "import mmap, sys; m = mmap.mmap(-1, 64 << 20); m.write(b'x' * (64 << 20));"
    code += "print('up', flush=True); sys.stdin.read()"
    run = [sys.executable, "-c", code]
    with subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        loop, container = FakeLoop(), FakeContainer(process.pid, memory_limit=100 * MEBIBYTE)
        container.written_places = [volume(64 * MEBIBYTE)]
        SampledLimits(loop, MACHINE).follow(container)
        for _ in range(4):
            loop.turn()
    assert container.ended == []


def test_only_file_systems_in_memory_are_measured() -> None:
    lines = [
        "22 1 253:0 / /data rw,relatime - ext4 /dev/vda rw",
        r"23 1 0:20 / /a\040b rw,nosuid shared:1 - tmpfs tmpfs rw,size=64k",
        "24 1 0:21 / /\xfcber rw,nosuid shared:1 - tmpfs tmpfs rw,size=64k",
    ]
    places = ["/data", "/a b", "/a b", "/\xfcber", "/other"]
    assert places_in_memory(places, lambda: "\n".join(lines)) == ["/a b", "/\xfcber"]
    assert places_in_memory([], lambda: "never read") == ()
    assert bytes_of_files("/missing") == 0
