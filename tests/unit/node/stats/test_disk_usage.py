"""Walks take turns, rest, and leave out what has not run."""

from pathlib import Path

import pytest

from kedge.node.stats import disk_usage
from kedge.node.stats.disk_usage import REST_SECONDS, DiskKey, DiskSubject, DiskUsage
from kedge.node.stats.disk_walk import DiskTotal
from kedge.testing.clock import FakeClock

MAIN, OTHER = DiskKey("uid", "main"), DiskKey("uid", "other")


def files(directory: Path, count: int) -> Path:
    directory.mkdir(exist_ok=True)
    for number in range(count):
        (directory / f"{number}").touch()
    return directory


def subject(key: DiskKey, directory: Path, spent: int = -1) -> DiskSubject:
    return DiskSubject(key, [directory], [], spent)


async def test_totals_are_those_of_the_last_walk(tmp_path: Path) -> None:
    usage, top = DiskUsage(FakeClock()), files(tmp_path / "a", 3)
    assert usage.of(MAIN) is None
    await usage.walk_some([DiskSubject(MAIN, [top], [tmp_path], -1)])
    assert usage.of(MAIN) == DiskTotal(0, 3)


async def test_a_walk_over_many_files_takes_several_passes_and_others_do_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_usage, "PASS_ENTRIES", 300)
    large, small = files(tmp_path / "large", 1000), files(tmp_path / "small", 5)
    usage = DiskUsage(FakeClock())
    subjects = [subject(MAIN, large), subject(OTHER, small)]
    passes = 0
    while usage.of(MAIN) is None:
        await usage.walk_some(subjects)
        passes += 1
        assert usage.of(OTHER) == DiskTotal(0, 5) or passes < 2
    assert 2 < passes < 12
    assert usage.of(MAIN) == DiskTotal(0, 1000)


async def test_the_same_directories_rest_after_a_walk(tmp_path: Path) -> None:
    clock, top = FakeClock(), files(tmp_path / "a", 1)
    usage = DiskUsage(clock)
    await usage.walk_some([subject(MAIN, top)])
    files(top, 2)
    await usage.walk_some([subject(MAIN, top)])
    assert usage.of(MAIN) == DiskTotal(0, 1)
    await clock.advance(REST_SECONDS + 1)
    await usage.walk_some([subject(MAIN, top)])
    assert usage.of(MAIN) == DiskTotal(0, 2)


async def test_what_has_not_run_is_not_walked_over(tmp_path: Path) -> None:
    clock, top = FakeClock(), files(tmp_path / "a", 1)
    usage = DiskUsage(clock)
    await usage.walk_some([subject(MAIN, top, spent=7)])
    files(top, 2)
    await clock.advance(REST_SECONDS + 1)
    await usage.walk_some([subject(MAIN, top, spent=7)])
    assert usage.of(MAIN) == DiskTotal(0, 1)
    await usage.walk_some([subject(MAIN, top, spent=8)])
    assert usage.of(MAIN) == DiskTotal(0, 2)


async def test_pods_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    usage, top = DiskUsage(FakeClock()), files(tmp_path / "a", 1)
    await usage.walk_some([subject(MAIN, top)])
    await usage.walk_some([])
    assert usage.of(MAIN) is None
