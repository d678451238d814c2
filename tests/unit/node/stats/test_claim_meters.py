"""The windows of claims outlive pods and agents."""

from pathlib import Path
from typing import Any

import pytest

from kedge.metrics.detail_windows import numbers
from kedge.metrics.window_file import WindowFile
from kedge.metrics.windows import TICK_SECONDS
from kedge.node.stats import claim_meters
from kedge.node.stats.claim_meters import ClaimMeters
from kedge.node.stats.claim_usage import MeasuredClaim, NoClaims
from kedge.node.stats.meters import TrackIndex
from kedge.node.stats.rows import Rows
from kedge.node.storage.volume_driver import VolumeUsage
from kedge.testing.clock import FakeClock


class SetClaims(NoClaims):
    """Has the usage that a test sets, by name."""

    def __init__(self) -> None:
        self.used: dict[str, int] = {}

    def uids(self) -> set[str]:
        return {f"uid-{name}" for name in self.used}

    def all(self) -> list[MeasuredClaim]:
        return [
            MeasuredClaim("ns", name, f"uid-{name}", VolumeUsage(used_bytes=used, inodes_used=3))
            for name, used in self.used.items()
        ]


class Bench:
    """Meters with a clock; each round is a tick."""

    def __init__(self, directory: Path) -> None:
        self.claims = SetClaims()
        self._directory = directory
        self._clock = FakeClock()
        self.restart()

    def restart(self) -> None:
        """What is known now, is known from the file."""
        self.windows = WindowFile(self._directory / "usage", "boot")
        self.meters = ClaimMeters(self.claims, TrackIndex(self.windows, self._clock))

    async def tick(self, seconds: int = TICK_SECONDS, **used: int) -> None:
        """The claims have so many bytes when a tick ends."""
        self.claims.used = used
        await self._clock.advance(seconds)
        self.meters.close(int(self._clock.now().timestamp()) // TICK_SECONDS)

    def shown(self) -> dict[str, tuple[float, ...]]:
        """The bytes of each claim: three statistics of each window."""
        rows = Rows()
        return {
            each.name: numbers(rows.details[each.row])[0] for each in self.meters.measured(rows)
        }


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def about(*amounts: int) -> Any:
    """Codes have three digits."""
    return pytest.approx(amounts, rel=0.01)


async def test_windows_have_mean_and_maximum_of_the_ticks(bench: Bench) -> None:
    await bench.tick(c=1 << 20)
    await bench.tick(c=3 << 20)
    found = bench.shown()["c"]
    assert found[:1] == about(3 << 20)
    assert found[3:5] == about(2 << 20, 3 << 20)
    rows = Rows()
    row = next(bench.meters.measured(rows)).row
    assert numbers(rows.details[row])[1][:1] == about(3)


async def test_an_unmounted_claim_is_not_reported_and_keeps_its_windows(bench: Bench) -> None:
    await bench.tick(c=3 << 20)
    await bench.tick()
    assert bench.shown() == {}
    await bench.tick(c=1 << 20)
    assert bench.shown()["c"][4:5] == about(3 << 20)
    bench.windows.close()
    bench.restart()
    await bench.tick(c=1 << 20)
    assert bench.shown()["c"][4:5] == about(3 << 20)


async def test_claims_that_nobody_uses_any_more_are_forgotten(bench: Bench) -> None:
    for number in range(claim_meters.MOST_UNMOUNTED + 3):
        await bench.tick(**{f"c{number}": 1})
    assert len(list(bench.windows)) == claim_meters.MOST_UNMOUNTED + 1
    await bench.tick(2 * 86400)
    assert list(bench.windows) == []
