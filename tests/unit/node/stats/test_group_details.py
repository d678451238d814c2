"""Details of control groups of both versions, and of processes."""

import os
import subprocess
from pathlib import Path
from typing import cast

import pytest

from kedge.metrics.series_memory import UNKNOWN
from kedge.metrics.windows import DETAILS
from kedge.node.stats import group_details
from kedge.node.stats.cgroup import Descriptors, GroupSource
from kedge.node.stats.details import PERIODS, DetailReading
from kedge.node.stats.group_details import GroupDetails, ProcessTraffic, TreeDetails
from kedge.supervisor.kernel.cgroups import Cgroups, Hierarchy

PRESSURE = (
    "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\n"
    "full avg10=0.00 avg60=0.00 avg300=0.00 total=500000\n"
)
IO_STAT = "8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n8:16 rbytes=1 rios=1\n"
CPU_STAT = "nr_periods 40\nnr_throttled 10\nthrottled_time 123\n"


def reading() -> DetailReading:
    return [UNKNOWN] * (PERIODS + 1)


def named(found: DetailReading) -> dict[str, float]:
    known = zip(DETAILS, found, strict=False)
    return {detail.name: value for detail, value in known if value != UNKNOWN}


def put(directory: Path, **files: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name.replace("__", ".")).write_text(text)


def unified(top: Path) -> Cgroups:
    put(
        top / "pod" / "main",
        cpu__stat="usage_usec 5\n" + CPU_STAT,
        memory__stat="anon 1\npgfault 70\npgmajfault 7\n",
        memory__events="low 0\noom 3\noom_kill 2\noom_group_kill 1\n",
        io__stat=IO_STAT,
        cpu__pressure=PRESSURE,
        memory__pressure=PRESSURE,
        io__pressure=PRESSURE,
    )
    return Cgroups([Hierarchy(str(top), frozenset(["cpu", "memory", "io"]), True)])


def test_the_second_version_has_everything(tmp_path: Path) -> None:
    found = reading()
    GroupDetails(unified(tmp_path), "/pod/main", Descriptors(100)).fill(found)
    assert named(found) == {
        "disk-read": 4097.0,
        "disk-write": 8192.0,
        "disk-reads": 2.0,
        "disk-writes": 2.0,
        "cpu-throttled": 10.0,
        "cpu-pressure-some": 2.5,
        "memory-pressure-some": 2.5,
        "memory-pressure-full": 0.5,
        "io-pressure-some": 2.5,
        "io-pressure-full": 0.5,
        "oom-kills": 2.0,
        "page-faults": 70.0,
        "major-page-faults": 7.0,
    }
    assert found[PERIODS] == 40.0


def test_without_descriptors_to_spare_files_are_opened_each_time(tmp_path: Path) -> None:
    groups, kept, lent = unified(tmp_path), reading(), reading()
    GroupDetails(groups, "/pod/main", Descriptors(100)).fill(kept)
    GroupDetails(groups, "/pod/main", Descriptors(0)).fill(lent)
    assert kept == lent


def test_a_group_of_groups_has_only_its_pressure(tmp_path: Path) -> None:
    found = reading()
    GroupDetails(unified(tmp_path), "/pod/main", Descriptors(9), pressure_only=True).fill(found)
    assert all("pressure" in name for name in named(found))


def test_the_first_version_adds_up_the_traffic_of_processes(tmp_path: Path) -> None:
    put(tmp_path / "cpu" / "main", cpu__stat=CPU_STAT)
    put(
        tmp_path / "memory" / "main",
        memory__stat="pgfault 1\ntotal_pgfault 70\ntotal_pgmajfault 7\n",
        memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
        cgroup__procs=f"{os.getpid()}\n{1 << 22}\n",
    )
    put(tmp_path / "unified" / "main", cpu__pressure="some avg10=0.00 total=1000000\n")
    groups = Cgroups(
        [
            Hierarchy(str(tmp_path / "cpu"), frozenset(["cpu"]), False),
            Hierarchy(str(tmp_path / "memory"), frozenset(["memory"]), False),
            Hierarchy(str(tmp_path / "unified"), frozenset(), True),
        ]
    )
    found = reading()
    GroupDetails(groups, "/main", Descriptors(100)).fill(found)
    told = named(found)
    assert (told.pop("disk-read") >= 0, told.pop("disk-write") >= 0) == (True, True)
    assert told == {
        "cpu-throttled": 10.0,
        "cpu-pressure-some": 1.0,
        "oom-kills": 1.0,
        "page-faults": 70.0,
        "major-page-faults": 7.0,
    }


def test_a_group_that_is_gone_is_unknown(tmp_path: Path) -> None:
    found = reading()
    source = GroupDetails(unified(tmp_path), "/pod/other", Descriptors(100))
    source.fill(found)
    source.close()
    assert named(found) == {}


def test_too_many_processes_are_not_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_details, "_MOST_PROCESSES", 2)
    found = reading()
    group_details.fill_traffic([os.getpid()] * 3, found)
    assert named(found) == {}


def test_without_groups_a_tree_of_processes_has_traffic_and_faults() -> None:
    found = reading()
    TreeDetails(os.getpid()).fill(found)
    assert named(found).keys() == {"disk-read", "disk-write", "page-faults", "major-page-faults"}
    assert named(found)["page-faults"] > 0
    found = reading()
    TreeDetails(1 << 22).fill(found)
    assert named(found) == {}


class ReadMemory:
    """Memory whose details a panel has just read."""

    def __init__(self, text: bytes) -> None:
        self.text = text

    def take_stat(self) -> bytes:
        found, self.text = self.text, b""
        return found


def test_memory_that_was_just_read_is_not_read_again(tmp_path: Path) -> None:
    memory = ReadMemory(b"anon 1\npgfault 71\npgmajfault 8\n")
    source = GroupDetails(
        unified(tmp_path), "/pod/main", Descriptors(100), memory=cast(GroupSource, memory)
    )
    faults = []
    for _ in range(2):
        found = reading()
        source.fill(found)
        faults.append((named(found)["page-faults"], named(found)["major-page-faults"]))
    assert faults == [(71.0, 8.0), (70.0, 7.0)]


def test_files_of_processes_stay_open_while_these_are_the_same(tmp_path: Path) -> None:
    listed, kept = tmp_path / "cgroup.procs", Descriptors(10)
    listed.write_text(f"{os.getpid()}\n")
    traffic = ProcessTraffic(str(listed), kept)
    opened = []
    for text in ("", "", f"{os.getppid()}\n", ""):
        listed.write_text(listed.read_text() + text)
        found = reading()
        traffic.fill(found)
        assert {"disk-read", "disk-write"} <= named(found).keys()
        opened.append(traffic._processes)
    assert [len(each) for each in opened] == [1, 1, 2, 2]
    assert opened[0] == opened[1]
    assert opened[2] == opened[3]
    traffic.close()
    assert kept.open([str(listed)] * 10)


def test_a_process_that_has_ended_does_not_hide_the_others(tmp_path: Path) -> None:
    child = subprocess.Popen(["sleep", "60"])
    listed = tmp_path / "cgroup.procs"
    listed.write_text(f"{os.getpid()}\n{child.pid}\n")
    traffic = ProcessTraffic(str(listed), Descriptors(10))
    traffic.fill(reading())
    assert len(traffic._processes) == 2
    child.kill()
    child.wait()
    # The list is that of a moment before.
    found = reading()
    traffic.fill(found)
    assert {"disk-read", "disk-write"} <= named(found).keys()
    traffic.close()


def test_a_group_with_many_processes_keeps_none_of_their_files(tmp_path: Path) -> None:
    listed = tmp_path / "cgroup.procs"
    listed.write_text(f"{os.getpid()}\n" * 5)
    traffic = ProcessTraffic(str(listed), Descriptors(10))
    found = reading()
    traffic.fill(found)
    assert traffic._processes == ()
    assert "disk-read" in named(found)
    traffic.close()
