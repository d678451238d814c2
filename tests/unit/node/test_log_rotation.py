"""Logs that grow too long are set aside, and only the newest parts stay."""

import os
from pathlib import Path

import pytest

from kedge.node.log_rotation import MOST_BYTES, MOST_FILES, LogRotation, set_aside
from kedge.node.runtime.runtime import Container, RuntimeFailure, State
from kedge.testing.clock import FakeClock
from kedge.testing.runtime import FakeRuntime


class Reopening(FakeRuntime):
    """Goes on in a new file, as a runtime does."""

    def __init__(self, clock: FakeClock, path: Path) -> None:
        super().__init__(clock)
        self.path = path
        self.refuses = False

    async def reopen_log(self, container: str) -> None:
        if self.refuses:
            raise RuntimeFailure("no")
        self.path.touch()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def runtime(clock: FakeClock, tmp_path: Path) -> Reopening:
    return Reopening(clock, tmp_path / "0.log")


def rotation(runtime: Reopening, clock: FakeClock) -> LogRotation:
    record = Container(
        id="c", sandbox="s", name="c", state=State.RUNNING, log_path=str(runtime.path)
    )
    return LogRotation(runtime, lambda: [record], clock)


def grow(path: Path, to: int = MOST_BYTES + 1) -> None:
    path.touch()
    os.truncate(path, to)


async def test_a_short_log_is_left_alone(runtime: Reopening, clock: FakeClock) -> None:
    grow(runtime.path, MOST_BYTES)
    await rotation(runtime, clock).look()
    assert set_aside(str(runtime.path)) == []


async def test_a_long_log_goes_on_in_a_new_file(runtime: Reopening, clock: FakeClock) -> None:
    grow(runtime.path)
    await rotation(runtime, clock).look()
    [old] = set_aside(str(runtime.path))
    assert old == f"{runtime.path}.{clock.now():%Y%m%d-%H%M%S}"
    assert os.stat(old).st_size == MOST_BYTES + 1
    assert runtime.path.stat().st_size == 0


async def test_only_the_newest_files_stay(runtime: Reopening, clock: FakeClock) -> None:
    rotating = rotation(runtime, clock)
    for _ in range(MOST_FILES + 2):
        grow(runtime.path)
        await rotating.look()
        await clock.advance(10)
    kept = set_aside(str(runtime.path))
    assert len(kept) == MOST_FILES - 1
    assert kept == sorted(kept)


async def test_a_log_that_cannot_be_reopened_keeps_its_name(
    runtime: Reopening, clock: FakeClock
) -> None:
    grow(runtime.path)
    runtime.refuses = True
    await rotation(runtime, clock).look()
    assert set_aside(str(runtime.path)) == []
    assert runtime.path.stat().st_size == MOST_BYTES + 1


async def test_a_log_that_is_gone_is_no_reason_to_stop(
    runtime: Reopening, clock: FakeClock
) -> None:
    await rotation(runtime, clock).look()
