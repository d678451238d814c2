"""Counters of control groups of all sorts, of processes, and of the machine."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kedge.metrics.track import UsageReading
from kedge.node.stats.cgroup import (
    Descriptors,
    GroupSource,
    MachineSource,
    ProcessSource,
    TreeSource,
    busy,
    fields,
)
from kedge.testing import descriptors
from kedge.testing.measured import MeasuredMachine as Machine
from kedge.testing.measured import Version

GROUP = "/kedge/a/podu/c"


@pytest.mark.parametrize("version", ["v1", "hybrid", "v2"])
@pytest.mark.parametrize("most", [0, 100])
def test_a_group_is_read_in_every_version_with_and_without_descriptors_to_spare(
    tmp_path: Path, version: Version, most: int
) -> None:
    machine = Machine(tmp_path, version)
    machine.use(GROUP, cpu=1.5, memory=5_000_000, inactive=1_000_000)
    source = GroupSource(machine.cgroups, GROUP, Descriptors(most))
    assert source.read() == UsageReading(1_500_000_000, 4_000_000)
    machine.use(GROUP, cpu=2.25, memory=9_000_000, inactive=9_000_001)
    assert source.read() == UsageReading(2_250_000_000, 0)
    source.close()


def test_a_group_that_is_gone_reads_as_nothing_and_is_found_again(machine: Machine) -> None:
    source = GroupSource(machine.cgroups, GROUP, Descriptors(0))
    assert source.read() is None
    machine.use(GROUP, cpu=1, memory=1)
    assert source.read() == UsageReading(1_000_000_000, 1)
    machine.remove(GROUP)
    assert source.read() is None


def test_descriptors_are_kept_while_there_are_some_and_given_back(
    machine: Machine, tmp_path: Path
) -> None:
    kept = Descriptors(6)
    paths = [f"/kedge/{number}" for number in range(3)]
    for path in paths:
        machine.use(path, cpu=1, memory=1)
    sources = [GroupSource(machine.cgroups, path, kept) for path in paths]
    assert all(source.read() for source in sources)
    assert len(descriptors.below(tmp_path)) == 6
    for source in sources:
        source.close()
    assert not descriptors.below(tmp_path)
    assert kept.open([]) == ()


def test_what_is_inactive_is_found_however_much_is_before_it(machine: Machine) -> None:
    machine.use(GROUP, cpu=1, memory=100, inactive=40)
    stat = next(Path(machine.cgroups.hierarchies[1].place).rglob("memory.stat"))
    stat.write_text("".join(f"other_{n} 1\n" for n in range(900)) + "total_inactive_file 30\n")
    source = GroupSource(machine.cgroups, GROUP, Descriptors())
    assert source.read() == UsageReading(1_000_000_000, 70)
    source.close()


def test_memory_whose_amount_stays_is_looked_at_closely_now_and_then(machine: Machine) -> None:
    machine.use(GROUP, cpu=1, memory=100, inactive=40)
    source = GroupSource(machine.cgroups, GROUP, Descriptors())
    assert source.read() == UsageReading(1_000_000_000, 60)
    machine.use(GROUP, cpu=1, memory=100, inactive=10)
    seen = [source.read() for _ in range(10)]
    assert seen[-1] == UsageReading(1_000_000_000, 90)
    source.close()


def test_details_of_memory_are_given_once_and_only_if_a_panel_has_read_them(
    machine: Machine,
) -> None:
    machine.use(GROUP, cpu=1, memory=100, inactive=40)
    source = GroupSource(machine.cgroups, GROUP, Descriptors())
    source.read()
    assert source.take_stat() == b""
    source.look(100, source.descriptors[2])
    assert b"inactive_file 40\n" in source.take_stat()
    assert source.take_stat() == b""
    source.look(100, source.descriptors[2])
    # By the next reading they are old.
    source.read()
    assert source.take_stat() == b""
    source.look(100, source.descriptors[2])
    source.close()
    assert source.take_stat() == b""


def test_a_part_of_the_details_of_memory_is_not_given(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "v2")
    machine.use(GROUP, cpu=1, memory=100, inactive=40)
    (stat,) = tmp_path.rglob("c/memory.stat")
    stat.write_text(stat.read_text().ljust(5000, "#"))
    source = GroupSource(machine.cgroups, GROUP, Descriptors())
    assert source.read() == UsageReading(1_000_000_000, 60)
    source.look(100, source.descriptors[2])
    assert source.take_stat() == b""
    source.close()


def test_memory_that_changes_little_is_looked_at_closely_only_now_and_then(
    machine: Machine,
) -> None:
    machine.use(GROUP, cpu=1, memory=25_600_000, inactive=5_000_000)
    source = GroupSource(machine.cgroups, GROUP, Descriptors())
    assert source.read() == UsageReading(1_000_000_000, 20_600_000)
    machine.use(GROUP, cpu=1, memory=25_690_000, inactive=5_080_000)
    assert source.read() == UsageReading(1_000_000_000, 20_690_000)
    machine.use(GROUP, cpu=1, memory=25_720_000, inactive=5_090_000)
    assert source.read() == UsageReading(1_000_000_000, 20_630_000)


def test_memory_that_changes_without_files_need_not_be_looked_at_each_time(
    machine: Machine,
) -> None:
    """A twentieth more, a twentieth less; by then what files take may be off by that much."""
    source = GroupSource(machine.cgroups, GROUP, Descriptors())
    for number in range(20):
        machine.use(GROUP, cpu=1, memory=100_000_000 + number % 2 * 5_000_000, inactive=7_000_000)
        assert source.read() == UsageReading(1_000_000_000, 93_000_000 + number % 2 * 5_000_000)
    machine.use(GROUP, cpu=1, memory=104_000_000, inactive=12_000_000)
    assert source.read() == UsageReading(1_000_000_000, 97_000_000)
    machine.use(GROUP, cpu=1, memory=120_000_000, inactive=27_000_000)
    assert source.read() == UsageReading(1_000_000_000, 93_000_000)
    # They were files after all: it is looked at closely again whenever it changes.
    machine.use(GROUP, cpu=1, memory=121_000_000, inactive=28_000_000)
    assert source.read() == UsageReading(1_000_000_000, 93_000_000)
    source.close()


def test_processes_are_counted_with_their_children_and_their_dead() -> None:
    # The kernel counts the time of dead children in hundredths of a second.
    work = "while time.process_time() < 0.05: pass"
    code = (
        "import os, sys, time\n"
        "def work():\n"
        f"    {work}\n"
        "if not os.fork(): work(); os._exit(0)\n"
        "os.wait()\n"
        "if not os.fork(): work(); sys.stdin.read(); os._exit(0)\n"
        "print('ready', flush=True); os.wait()\n"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        alone, tree = ProcessSource(process.pid), TreeSource(process.pid)
        by_itself, together = alone.read(), tree.read()
        process.stdin.close()
        process.wait()
        assert by_itself is not None
        assert together is not None
        assert together.cpu > by_itself.cpu
        assert together.memory > by_itself.memory > 1 << 20
        assert alone.read() is None
        assert tree.read() is None


def test_this_process_is_counted_to_the_microsecond() -> None:
    before = time.process_time_ns()
    reading = ProcessSource(os.getpid()).read()
    after = time.process_time_ns()
    assert reading is not None
    assert before <= reading.cpu <= after


def test_a_process_that_never_was_has_no_usage() -> None:
    assert TreeSource(0).read() is None
    assert ProcessSource(2**22 + 5).read() is None


def test_the_machine_is_read_from_its_root_group_or_from_proc(
    tmp_path: Path, machine: Machine
) -> None:
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "stat").write_text("cpu  100 50 25 900 30 5 10 10 7 3\ncpu0 1 2 3\n")
    (proc / "meminfo").write_text(
        "MemTotal:  1000 kB\nMemFree:  300 kB\nInactive:  250 kB\nInactive(file):  200 kB\n"
    )
    machine.use("/", cpu=77.5, memory=1)
    for cgroups, seconds in ((None, 2.0), (machine.cgroups, 77.5)):
        source = MachineSource(cgroups, str(proc))
        assert source.read() == UsageReading(round(seconds * 1e9), 500 * 1024)
        source.close()


def test_idle_time_is_not_busy_and_guests_are_not_counted_twice() -> None:
    assert busy(b"cpu  1 2 4 1000 2000 8 16 32 64 128\n") == 63 * 10_000_000


def test_fields_of_a_file_that_is_not_there_are_none(machine: Machine) -> None:
    machine.use(GROUP, cpu=1, memory=1)
    assert fields(machine.cgroups, "memory", GROUP, "memory.stat")["rss"] == 6
    assert fields(machine.cgroups, "memory", "/other", "memory.stat") == {}
    assert fields(machine.cgroups, "pids", GROUP, "pids.current") == {}
