"""Groups that are read together say what each would say if it were read by itself."""

import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.machinery.clock import Clock
from kedge.metrics.window_file import SLOTS, WindowFile
from kedge.metrics.windows import TICK_SECONDS
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
        self.pod = PodMeter(
            machine.known["uid-web"][0], book, UsageSources(machine.cgroups, NODE, list)
        )
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


class SteppedClock:
    """A clock that a test sets, for code that does not wait."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(START + self.seconds, UTC)

    def monotonic(self) -> float:
        return 1000.0 + self.seconds


class Step(NamedTuple):
    """One second in the life of a pod."""

    missed: int
    """Seconds without a sample before it."""
    late: float
    """The delay of the sample, as a part of a second."""
    used: int
    """Milliseconds of processor time since the step before; -1 if the counter starts again."""
    memory: int
    event: str
    """`restart` for another run of the container, `gone` if its group cannot be read."""


class Side:
    """A pod in a file of its own, sampled in one of two ways and closed as a Sampler does it."""

    def __init__(self, path: Path, machine: MeasuredMachine, clock: Clock, *, panels: bool) -> None:
        self._machine = machine
        self._clock = clock
        self._with_panels = panels
        self._panels: Panels | None = None
        self._tick = self._second = 0
        index = TrackIndex(WindowFile(path, "boot"), clock)
        self.pod = PodMeter(
            machine.known["uid-web"][0], index, UsageSources(machine.cgroups, NODE, list)
        )

    def take(self, second: int) -> None:
        self._close((second - 1) // TICK_SECONDS)
        pod, observed = self._machine.known["uid-web"]
        if second != self._second + 1 or observed is not self.pod.seen:
            self._panels = None
        self.pod.see(pod, observed)
        if self._with_panels:
            if self._panels is None:
                self._panels = Panels(self.pod.meters())
            if not self._panels.sample(second, self._clock):
                self._panels = None
        else:
            for meter in self.pod.meters():
                meter.sample(second, self._clock)
        self._second = second
        if second % TICK_SECONDS == 0:
            self._close(second // TICK_SECONDS)

    def _close(self, tick: int) -> None:
        if self._tick and tick > self._tick:
            self.pod.close(tick)
        self._tick = max(tick, self._tick)

    def lose_group(self) -> None:
        """Close the files of a group; a removed file could be read otherwise."""
        meter = self.pod.containers.get("main")
        if meter is not None and meter.source is not None:
            meter.source.close()
        self._panels = None

    def state(self) -> list[object]:
        """Everything that a track remembers, byte by byte, and everything that it shows."""
        found: list[object] = []
        for track in self.pod.tracks():
            slot, columns = track.slot, track.slot.columns
            rings = [bytes(ring[slot.place :: SLOTS]) for ring in (columns.cpu, columns.memory)]
            found += [slot.key, slot.load(), bytes(slot.memory), rings]
            found += [track.latest, track.row(), track.pending, track.since, track.run]
        return found


steps = st.lists(
    st.builds(
        Step,
        missed=st.sampled_from([0, 0, 0, 0, 0, 0, 0, 1, 4, 9, 10, 11, 70]),
        late=st.sampled_from([0.0, 0.0, 0.0, 0.1, 0.5, 0.8]),
        used=st.sampled_from([0, 0, 5, 250, 1000, 4000, -1]),
        memory=st.sampled_from([0, 1, 7 * MB, 10 * MB, 10 * MB + 4096, 900 * MB]),
        event=st.sampled_from(["", "", "", "", "", "", "", "", "restart", "gone"]),
    ),
    min_size=5,
    max_size=30,
)


@given(steps, st.sampled_from(["v1", "hybrid", "v2"]), st.sampled_from([0, MB]))
@settings(max_examples=40, deadline=None)
def test_a_panel_leaves_the_same_data_behind_as_tracks_sampled_one_by_one(
    told: list[Step], version: Version, inactive: int
) -> None:
    """How much memory is inactive does not change here: a panel and a source look at it at
    different times, on purpose."""
    with tempfile.TemporaryDirectory() as directory:
        clock = SteppedClock()
        machine = MeasuredMachine(Path(directory) / "cgroup", version)
        cpu = 0.0
        use = _users(machine, inactive)
        use(cpu, 10 * MB)
        machine.run("web", "main", "side", began=START)
        sides = [
            Side(Path(directory) / name, machine, cast(Clock, clock), panels=name == "panels")
            for name in ("panels", "single")
        ]
        second = 0
        for step in told:
            second += step.missed + 1
            clock.seconds = second + step.late
            cpu = 0.0 if step.used < 0 else cpu + step.used / 1000
            use(cpu, step.memory)
            if step.event == "restart":
                machine.run("web", "main", "side", began=START + clock.seconds)
            if step.event == "gone":
                machine.remove(WEB)
            for side in sides:
                if step.event == "gone":
                    side.lose_group()
                side.take(START + second)
            assert sides[0].state() == sides[1].state()
        for side in sides:
            side.pod.end()


def _users(machine: MeasuredMachine, inactive: int) -> Callable[[float, int], None]:
    def use(cpu: float, memory: int) -> None:
        for path in (WEB, SIDE, WHOLE):
            machine.use(path, cpu=cpu, memory=memory, inactive=inactive)

    return use
