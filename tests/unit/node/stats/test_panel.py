"""Groups that are read together say what each would say if it were read by itself."""

from pathlib import Path

import pytest

from kedge.metrics.window_file import WindowFile
from kedge.node.stats.meters import PodMeter, TrackIndex, UsageMeter, UsageSources
from kedge.node.stats.panel import Panels
from kedge.testing.clock import FakeClock
from kedge.testing.measured import NODE, MeasuredMachine, Version, group

START = 1_893_456_000
"""The second at which a FakeClock begins; a tick ends with it."""
MB = 1 << 20
WEB, SIDE, WHOLE = group("uid-web", "main"), group("uid-web", "side"), group("uid-web")


class Bench:
    """A pod of two containers, its meters, and panels of those."""

    def __init__(self, directory: Path, machine: MeasuredMachine) -> None:
        self.clock = FakeClock()
        self.machine = machine
        machine.run("web", "main", "side", began=START)
        book = TrackIndex(WindowFile(directory / "usage", "boot"), self.clock)
        self.pod = PodMeter(machine.known["uid-web"][0], book, UsageSources(machine.cgroups, NODE))
        self.use(0.0)
        self.pod.see(*machine.known["uid-web"])
        self.second = START
        self.settled = False
        self.panels = Panels(self.pod.meters())

    @property
    def main(self) -> UsageMeter:
        return self.pod.containers["main"]

    def use(self, cpu: float, memory: int = 10 * MB, inactive: int = 0) -> None:
        for path in (WEB, SIDE, WHOLE):
            self.machine.use(path, cpu=cpu, memory=memory, inactive=inactive)

    async def pass_time(self, seconds: int = 1, *, missed: int = 0) -> None:
        """Measure so many seconds, after some in which nobody looked."""
        await self.clock.advance(missed)
        self.second += missed
        for _ in range(seconds):
            await self.clock.advance(1)
            self.second += 1
            if not self.settled:
                self.panels = Panels(self.pod.meters())
            self.settled = self.panels.sample(self.second, self.clock)


@pytest.fixture(params=["v1", "hybrid", "v2"])
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Bench:
    version: Version = request.param
    return Bench(tmp_path, MeasuredMachine(tmp_path, version))


async def settled(bench: Bench) -> Bench:
    """All of it is in panels."""
    await bench.pass_time(3)
    assert bench.settled
    return bench


async def test_what_is_read_is_what_was_used(bench: Bench) -> None:
    await settled(bench)
    bench.use(0.25, memory=12 * MB, inactive=MB)
    await bench.pass_time()
    assert bench.settled
    for meter in bench.pod.meters():
        latest = meter.track.latest
        assert latest is not None
        assert latest.time == START + 4
        assert latest.reading == (250_000_000, 11 * MB)
        assert latest.cores == 0.25


async def test_windows_are_those_of_the_seconds_that_were_read(bench: Bench) -> None:
    for second in range(1, 11):
        bench.use(second * 0.5, memory=second * MB)
        await bench.pass_time()
    bench.pod.close(bench.second // 10)
    mean, held, peak, most = bench.main.track.row()[:4]
    assert (mean, held) == (0.5, 5.5 * MB)
    assert (peak, most) == (0.5, 10 * MB)


async def test_memory_that_grows_by_files_alone_is_not_taken_for_its_own(bench: Bench) -> None:
    await settled(bench)
    bench.use(0.0, memory=100 * MB, inactive=90 * MB)
    await bench.pass_time()
    assert held(bench) == 10 * MB


async def test_files_that_come_into_use_are_seen_at_the_next_tick(bench: Bench) -> None:
    bench.use(0.0, memory=100 * MB, inactive=90 * MB)
    await settled(bench)
    bench.use(0.5, memory=100 * MB, inactive=20 * MB)
    await bench.pass_time()
    assert held(bench) == 10 * MB
    await bench.pass_time(6)
    assert bench.second % 10 == 0
    assert held(bench) == 80 * MB


async def test_who_does_nothing_is_looked_at_closely_once_a_minute(bench: Bench) -> None:
    bench.use(0.0, memory=100 * MB, inactive=90 * MB)
    await bench.pass_time(11)
    bench.use(0.0, memory=100 * MB, inactive=20 * MB)
    await bench.pass_time(48)
    assert held(bench) == 10 * MB
    await bench.pass_time()
    assert bench.second % 60 == 0
    assert held(bench) == 80 * MB


async def test_a_group_that_is_gone_leaves_the_others_and_is_found_again(bench: Bench) -> None:
    await settled(bench)
    bench.main.source.close()  # type: ignore[union-attr]
    bench.machine.remove(WEB)
    bench.panels = Panels(bench.pod.meters())
    await bench.pass_time()
    assert bench.main.track.latest is not None
    assert bench.main.track.latest.time == START + 3
    side = bench.pod.containers["side"].track.latest
    assert side is not None
    assert side.time == START + 4
    bench.use(0.5)
    await bench.pass_time()
    assert bench.main.track.latest.time == START + 5


async def test_what_was_not_looked_at_for_a_while_is_as_fresh_as_ever_afterwards(
    bench: Bench,
) -> None:
    await settled(bench)
    bench.use(2.0)
    await bench.pass_time(missed=3)
    latest = bench.main.track.latest
    assert latest is not None
    assert (latest.time, latest.cores) == (START + 7, 0.5)
    bench.pod.close(bench.second // 10 + 1)
    await bench.pass_time(missed=3)
    assert bench.main.track.latest is not None
    assert bench.main.track.latest.time == START + 11


async def test_a_counter_that_falls_has_no_cpu_for_that_second(bench: Bench) -> None:
    bench.use(8.0)
    await settled(bench)
    bench.use(1.0)
    await bench.pass_time()
    assert not bench.settled
    assert bench.main.track.latest is not None
    assert bench.main.track.latest.cores == -1
    bench.use(1.5)
    await bench.pass_time()
    assert bench.main.track.latest.cores == 0.5


def held(bench: Bench) -> int:
    latest = bench.main.track.latest
    assert latest is not None
    return latest.reading.memory
