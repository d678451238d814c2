"""The sampler as a whole. Tests named after a point are about that point of what the metrics API
was asked to be: 18 to 23 its schema and windows, 28 to 30 where and how they are made."""

import asyncio
import math
import os
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from kedge.api.core_v1.pod import container
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.metrics.frame import Frame, FramePod, index
from kedge.metrics.frame_codec import decode, encode
from kedge.metrics.series_memory import UNKNOWN
from kedge.metrics.track import UsageReading
from kedge.metrics.window_file import WindowFile
from kedge.metrics.windows import CORE, STATISTICS, WINDOWS
from kedge.node.pod.runtime_cache import PodRuntimeState
from kedge.node.runtime.runtime import RunState, RuntimeContainer
from kedge.node.stats.cgroup import UsageSource
from kedge.node.stats.meters import SYSTEMS, PodMeter, TrackIndex, UsageSources
from kedge.node.stats.sampler import Sampler
from kedge.testing.clock import FakeClock
from kedge.testing.measured import NODE, MeasuredMachine, group

START = 1_893_456_000
"""The second at which a FakeClock begins; a tick ends with it."""
MB = 1 << 20


class Bench:
    """A sampler, and what it measures; `rates` are cores by group, spent second by second."""

    def __init__(self, directory: Path, machine: MeasuredMachine, *, grouped: bool = True) -> None:
        self.clock = FakeClock()
        self.machine = machine
        self._directory = directory
        self._grouped = grouped
        self.restart()

    def restart(self) -> None:
        """What is known now, is known from the file."""
        store = WindowFile(self._directory / "usage", "boot")
        sources = UsageSources(self.machine.cgroups if self._grouped else None, NODE, list)
        self.sampler = Sampler(
            store, self.machine, sources, self.clock, runtime=lambda: self.machine.runtime
        )

    async def second(self, cpu: dict[str, float], memory: int = MB) -> None:
        """A second passes; by then groups have used so much."""
        await self.clock.advance(1)
        self.machine.use("/", cpu=sum(cpu.values()) + 50, memory=0)
        for path, used in cpu.items():
            self.machine.use(path, cpu=used, memory=memory)
        self.sampler.take(int(self.clock.now().timestamp()))

    def frame(self) -> Frame:
        return decode(encode(self.sampler.frame("n1", "node-uid", 10)))

    def pod(self, name: str = "web") -> FramePod:
        return next(pod for pod in self.frame().pods if pod.name == name)

    def shows(self, row: int, window: str, statistic: str, resource: str = "cpu") -> float:
        return round(self.frame().row(row)[index(window, statistic, resource)], 4)


@pytest.fixture
def bench(tmp_path: Path, machine: MeasuredMachine) -> Bench:
    machine.use("/", cpu=0, memory=0)
    return Bench(tmp_path, machine)


WEB = group("uid-web", "main")


async def minute_of(bench: Bench, cores: float, seconds: int = 20, begin: float = 0.0) -> float:
    """The pod `web` runs at so many cores; what it has used in the end."""
    for _ in range(seconds):
        begin += cores
        await bench.second({WEB: begin, group("uid-web"): begin, NODE: begin})
    return begin


async def test_point_18_a_node_has_its_machine_and_its_system_containers(bench: Bench) -> None:
    bench.machine.run("web", "main", began=START)
    bench.machine.runtime = os.getppid()
    # Agent and runtime are real processes: a machine has done more than any of its parts.
    await minute_of(bench, 0.25, begin=1e6)
    frame = bench.frame()
    assert (frame.node, frame.uid) == ("n1", "node-uid")
    assert [each.name for each in frame.systems] == list(SYSTEMS)
    cores = {each.name: bench.shows(each.row, "10s", "mean") for each in frame.systems}
    assert cores["pods"] == 0.25
    # The groups of the test add up to three times what the pod uses; all else is the rest.
    assert bench.shows(0, "10s", "mean") == 0.75
    assert bench.shows(0, "10s", "mean", "memory") > MB
    assert 0 <= cores["misc"] <= 0.75
    kubelet = next(each for each in frame.systems if each.name == "kubelet")
    assert bench.shows(kubelet.row, "10s", "mean", "memory") > 10 * MB


async def test_point_19_and_20_pods_have_containers_with_windows(bench: Bench) -> None:
    bench.machine.run("web", "main", "side", began=START)
    used = {WEB: 0.0, group("uid-web", "side"): 0.0, group("uid-web"): 0.0}
    for second in range(1, 21):
        used[WEB] = second * 0.5
        used[group("uid-web", "side")] = second * 0.125
        used[group("uid-web")] = second * 0.75
        await bench.second(used)
    pod = bench.pod()
    assert (pod.namespace, pod.name, pod.uid) == ("shop", "web", "uid-web")
    shown = {each.name: bench.shows(each.row, "10s", "mean") for each in pod.containers}
    assert shown == {"main": 0.5, "side": 0.125}
    # The total is the pod's own group, which has more in it than its containers.
    assert bench.shows(pod.row, "10s", "mean") == 0.75


async def test_point_21_all_windows_end_together_from_the_first_tick_on(bench: Bench) -> None:
    bench.machine.run("web", "main", began=START)
    await minute_of(bench, 0.5, seconds=9)
    assert bench.frame().pods == ()
    await minute_of(bench, 0.5, seconds=1, begin=4.5)
    frame = bench.frame()
    assert frame.end_tick * 10 == START + 10
    row = bench.pod().containers[0].row
    for window in WINDOWS:
        for statistic in STATISTICS:
            assert bench.shows(row, window, statistic) == 0.5
            assert bench.shows(row, window, statistic, "memory") == MB


async def test_point_22_ten_seconds_are_sequential_and_the_others_roll(bench: Bench) -> None:
    bench.machine.run("web", "main", began=START)
    used = await minute_of(bench, 1.0, seconds=10)
    row = bench.pod().containers[0].row
    for number in range(1, 7):
        used = await minute_of(bench, 0.5, seconds=10, begin=used)
        assert bench.frame().end_tick * 10 == START + 10 + number * 10
        assert bench.shows(row, "10s", "max") == 0.5
        # Of the minute the first tick is a part until it is more than a minute ago.
        rolled = (1.0 + 0.5 * number) / (number + 1) if number < 6 else 0.5
        assert bench.shows(row, "1m", "mean") == round(rolled, 4)
        assert bench.shows(row, "1h", "max") == 1.0


async def test_point_23_each_statistic_is_there_for_both_resources(bench: Bench) -> None:
    bench.machine.run("web", "main", began=START)
    used = 0.0
    for second in range(1, 61):
        used += second / 100
        await bench.second({WEB: used}, memory=second * MB)
    row = bench.pod().containers[0].row
    assert bench.shows(row, "1m", "mean") == round(sum(range(1, 61)) / 6000, 4)
    assert bench.shows(row, "1m", "max") == 0.6
    assert bench.shows(row, "1m", "95th") == 0.57
    assert bench.shows(row, "1m", "mean", "memory") == 30.5 * MB
    assert bench.shows(row, "1m", "95th", "memory") == 57 * MB


async def test_point_28_a_node_says_everything_in_one_message(bench: Bench) -> None:
    names = [f"web-{number}" for number in range(30)]
    for name in names:
        bench.machine.run(name, "main", began=START)
    groups = {group(f"uid-{name}", "main"): 0.0 for name in names}
    for second in range(1, 11):
        await bench.second(dict.fromkeys(groups, second * 0.01))
    body = encode(bench.sampler.frame("n1", "node-uid", 60))
    assert len(decode(body).pods) == 30
    assert len(body) < 30 * 300


async def test_point_30_history_survives_the_death_of_the_agent(bench: Bench) -> None:
    bench.machine.run("web", "main", began=START)
    used = await minute_of(bench, 1.5, seconds=34)
    before = bench.frame()
    bench.restart()
    used = await minute_of(bench, 0.5, seconds=6, begin=used)
    frame = bench.frame()
    assert frame.end_tick == before.end_tick + 1
    assert frame.pods[0].since == before.pods[0].since
    assert frame.since == before.since
    row = bench.pod().containers[0].row
    assert bench.shows(row, "1m", "max") == 1.5
    assert bench.shows(row, "10s", "mean") == round((4 * 1.5 + 6 * 0.5) / 10, 4)
    assert bench.shows(row, "1h", "mean") == round((34 * 1.5 + 6 * 0.5) / 40, 4)


async def test_a_second_that_was_measured_by_the_last_agent_is_not_measured_again(
    bench: Bench,
) -> None:
    bench.machine.run("web", "main", began=START)
    await minute_of(bench, 0.5, seconds=10)
    bench.restart()
    await bench.clock.advance(0.5)
    bench.machine.use(WEB, cpu=6.0, memory=MB)
    bench.sampler.take(START + 10)
    await bench.clock.advance(-0.5)
    await minute_of(bench, 0.5, begin=5.0, seconds=10)
    assert bench.shows(bench.pod().containers[0].row, "1m", "mean") == 0.5
    assert bench.shows(bench.pod().containers[0].row, "1m", "max") == 0.5


async def test_point_26_a_pod_that_is_gone_is_not_in_the_next_frame(bench: Bench) -> None:
    bench.machine.run("web", "main", began=START)
    used = await minute_of(bench, 0.5)
    assert [pod.name for pod in bench.frame().pods] == ["web"]
    del bench.machine.known["uid-web"]
    await minute_of(bench, 0.5, seconds=1, begin=used)
    assert bench.frame().pods == ()
    # Another of the same name knows nothing of the first.
    bench.machine.run("web", "main", began=START + 21, uid="uid-2")
    for second in range(1, 10):
        await bench.second({group("uid-2", "main"): second * 0.125})
    assert bench.shows(bench.pod().containers[0].row, "1d", "max") == 0.125


async def test_a_first_measurement_that_is_yet_to_come_does_not_hide_a_pod(bench: Bench) -> None:
    bench.machine.run("web", "main", began=START)
    await minute_of(bench, 0.5, seconds=15)
    slot = bench.sampler.meters["uid-web"].containers["main"].track.slot
    slot.save(slot.load()._replace(since=START + 10_000))
    bench.restart()
    await minute_of(bench, 0.5, seconds=10, begin=7.5)
    assert START < bench.pod().since <= START + 20


async def test_pods_that_went_while_no_agent_ran_are_forgotten(bench: Bench) -> None:
    for name in ("web", "db"):
        bench.machine.run(name, "main", began=START)
    await minute_of(bench, 0.5)
    del bench.machine.known["uid-web"]
    bench.restart()
    bench.sampler.release_unused()
    assert {slot.key.uid for slot in WindowFile(bench._directory / "usage", "boot")} == {
        "",
        "uid-db",
    }


async def test_a_container_that_starts_again_keeps_its_windows(bench: Bench) -> None:
    bench.machine.run("web", "main", began=START)
    used = await minute_of(bench, 2.0, seconds=15)
    bench.machine.run("web", "main!", began=START)
    await minute_of(bench, 0.0, seconds=2, begin=used)
    bench.machine.run("web", "main", began=START + 17)
    await minute_of(bench, 0.5, seconds=23)
    row = bench.pod().containers[0].row
    assert bench.shows(row, "10s", "max") == 0.5
    assert bench.shows(row, "1m", "max") == 2.0


async def test_a_finished_pod_keeps_its_last_windows(bench: Bench) -> None:
    bench.machine.run("job", "main", began=START)
    path = group("uid-job", "main")
    for second in range(1, 14):
        await bench.second({path: second * 0.5})
    bench.machine.run("job", "main!", began=START, phase="Succeeded")
    for _ in range(40):
        await bench.second({path: 6.5})
    pod = bench.pod("job")
    assert pod.end_tick * 10 == START + 20
    assert bench.shows(pod.containers[0].row, "10s", "mean") == 0.5
    bench.restart()
    await bench.second({path: 6.5})
    for _ in range(20):
        await bench.second({path: 6.5})
    assert bench.pod("job") == pod
    assert bench.shows(pod.containers[0].row, "10s", "mean") == 0.5


async def test_an_initial_container_is_part_of_the_total(bench: Bench) -> None:
    bench.machine.run("web", "setup", began=START)
    setup, whole = group("uid-web", "setup"), group("uid-web")
    for second in range(1, 11):
        await bench.second({setup: second * 1.0, whole: second * 1.0})
    bench.machine.run("web", "setup!", "main", began=START + 10)
    for second in range(1, 21):
        await bench.second({WEB: second * 0.25, whole: 10 + second * 0.25})
    pod = bench.pod()
    assert bench.shows(pod.row, "1m", "max") == 1.0
    assert bench.shows(pod.row, "10s", "max") == 0.25
    rows = {each.name: each.row for each in pod.containers}
    assert bench.shows(rows["main"], "1m", "max") == 0.25
    assert bench.shows(rows["setup"], "10s", "max") == UNKNOWN
    assert bench.shows(rows["setup"], "1h", "max") == 1.0


def names_its_containers(bench: Bench, initial: list[str], others: list[str]) -> None:
    """The spec of the pod `web` does, as those of all real pods do."""
    pod, observed = bench.machine.known["uid-web"]
    spec = PodSpec(
        initContainers=[container.Container(name=each) for each in initial],
        containers=[container.Container(name=each) for each in others],
    )
    bench.machine.known["uid-web"] = replace(pod, spec=spec), observed


async def test_a_total_knows_what_was_used_before_the_pod_was_prepared(bench: Bench) -> None:
    bench.machine.run("web", "setup", began=START)
    names_its_containers(bench, ["setup"], ["main"])
    setup, whole = group("uid-web", "setup"), group("uid-web")
    for second in range(1, 11):
        await bench.second({setup: second * 1.0, whole: second * 1.0})
    since = bench.pod().since
    bench.machine.run("web", "setup!", "main", began=START + 10)
    names_its_containers(bench, ["setup"], ["main"])
    for second in range(1, 11):
        await bench.second({WEB: second * 0.25, whole: 10 + second * 0.25})
    pod = bench.pod()
    assert pod.since == since
    assert bench.shows(pod.row, "1m", "max") == 1.0
    assert bench.shows(pod.row, "1m", "mean") == 0.625
    assert bench.shows(pod.row, "10s", "mean") == 0.25


async def test_a_total_counts_from_the_start_as_its_containers_do(bench: Bench) -> None:
    bench.machine.run("web", "main", "side", began=START)
    names_its_containers(bench, [], ["main", "side"])
    for _ in range(10):
        used = {WEB: 0.5, group("uid-web", "side"): 0.25, group("uid-web"): 0.75}
        await bench.second(used)
    row = bench.pod().row
    assert bench.shows(row, "10s", "max") == 0.75
    assert bench.shows(row, "10s", "mean") == 0.075


async def test_a_total_does_not_count_what_was_used_before_anybody_looked(bench: Bench) -> None:
    bench.machine.run("web", "main", "side", began=START)
    pod, seen = bench.machine.known["uid-web"]
    again = tuple(replace(each, attempt=7) for each in seen.containers)
    bench.machine.known["uid-web"] = pod, PodRuntimeState(seen.sandboxes, again)
    for second in range(1, 11):
        used = second * 0.25
        await bench.second(
            {WEB: used, group("uid-web", "side"): used, group("uid-web"): 9e4 + used}
        )
    row = bench.pod().row
    assert bench.shows(row, "10s", "max") == 0.25
    assert bench.shows(row, "10s", "mean") == 0.25


async def test_a_container_that_looks_into_a_pod_leaves_its_total_what_it_was(bench: Bench) -> None:
    bench.machine.run("web", "main", began=START)
    names_its_containers(bench, [], ["main"])
    whole = group("uid-web")
    for second in range(1, 21):
        await bench.second({WEB: second * 1.0, whole: second * 1.0})
    pod, observed = bench.machine.known["uid-web"]
    debugger = RuntimeContainer(
        id="debugger",
        sandbox="s-uid-web",
        name="debugger",
        state=RunState.RUNNING,
        started_at=(START + 20) * 10**9,
        cgroup=group("uid-web", "debugger"),
    )
    looked_into = PodRuntimeState(observed.sandboxes, (debugger, *observed.containers))
    bench.machine.known["uid-web"] = pod, looked_into
    for _ in range(10):
        await bench.second({WEB: 20.0, group("uid-web", "debugger"): 0.0, whole: 20.0})
    total = bench.pod()
    assert total.since == START + 1
    assert bench.shows(total.row, "1m", "max") == 1.0
    assert bench.shows(total.row, "10s", "max") == 0.0


async def test_containers_are_in_the_order_of_the_pod(bench: Bench) -> None:
    bench.machine.run("web", "setup", "main", "side", began=START)
    pod, observed = bench.machine.known["uid-web"]
    spec = PodSpec(containers=[container.Container(name=each) for each in ("side", "main")])
    bench.machine.known["uid-web"] = replace(pod, spec=spec), observed
    groups = [group("uid-web", each) for each in ("setup", "main", "side")]
    for second in range(1, 11):
        await bench.second(dict.fromkeys(groups, second * 0.5))
    assert [each.name for each in bench.pod().containers] == ["side", "main", "setup"]
    bench.restart()
    for second in range(11, 21):
        await bench.second(dict.fromkeys(groups, second * 0.5))
    assert [each.name for each in bench.pod().containers] == ["side", "main", "setup"]


async def test_a_container_that_comes_later_is_news(bench: Bench) -> None:
    bench.machine.run("web", "setup", began=START)
    setup = group("uid-web", "setup")
    for second in range(1, 11):
        await bench.second({setup: second * 1.0})
    assert bench.sampler.has_news()
    assert [each.name for each in bench.pod().containers] == ["setup"]
    assert not bench.sampler.has_news()
    bench.machine.run("web", "setup!", "main", began=START + 10)
    for second in range(1, 11):
        await bench.second({WEB: second * 0.25})
    assert bench.sampler.has_news()
    assert {each.name for each in bench.pod().containers} == {"setup", "main"}
    assert not bench.sampler.has_news()


async def test_a_pod_without_a_group_is_counted_by_its_processes(
    tmp_path: Path, machine: MeasuredMachine
) -> None:
    bench = Bench(tmp_path, machine, grouped=False)
    machine.run("web", "main", "side", began=START)
    pod, observed = machine.known["uid-web"]
    mine = [
        RuntimeContainer(
            id=each.id,
            sandbox=each.sandbox,
            name=each.name,
            state=each.state,
            started_at=each.started_at,
            pid=os.getpid(),
        )
        for each in observed.containers
    ]
    machine.known["uid-web"] = pod, type(observed)(observed.sandboxes, tuple(mine))
    for _ in range(20):
        await bench.clock.advance(1)
        bench.sampler.take(int(bench.clock.now().timestamp()))
    found = bench.pod()
    single = bench.shows(found.containers[0].row, "10s", "mean", "memory")
    assert single > 10 * MB
    assert bench.shows(found.row, "10s", "mean", "memory") == pytest.approx(2 * single, rel=0.05)


async def test_a_clock_that_is_set_back_a_little_is_waited_for(bench: Bench) -> None:
    bench.machine.run("web", "main", began=START)
    await minute_of(bench, 0.5)
    before = bench.frame()
    bench.sampler.take(START + 15)
    assert bench.frame() == before


async def test_a_clock_that_is_set_back_far_is_followed(bench: Bench) -> None:
    bench.machine.run("web", "main", began=START)
    await minute_of(bench, 0.5)
    for second in range(START - 7200, START - 7180):
        bench.sampler.take(second)
    frame = bench.frame()
    assert frame.end_tick * 10 == START - 7190
    assert bench.shows(bench.pod().containers[0].row, "1h", "max") == 0.5


async def test_a_sampler_that_was_held_up_closes_the_tick_it_missed(bench: Bench) -> None:
    bench.machine.run("web", "main", began=START)
    used = await minute_of(bench, 0.5, seconds=18)
    await bench.clock.advance(4)
    await minute_of(bench, 0.5, seconds=8, begin=used + 2)
    row = bench.pod().containers[0].row
    assert bench.frame().end_tick * 10 == START + 30
    assert bench.shows(row, "1m", "mean") == 0.5
    assert bench.shows(row, "10s", "95th") == 0.5


async def test_it_looks_at_whole_seconds_and_says_when_a_tick_has_ended(bench: Bench) -> None:
    bench.machine.run("web", "main", began=START)
    bench.machine.use(WEB, cpu=1, memory=MB)
    await bench.clock.advance(0.3)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(bench.sampler.run())
        tick = tasks.create_task(bench.sampler.next_tick())
        await bench.clock.advance(9.6)
        assert not tick.done()
        await bench.clock.advance(0.2)
        assert tick.result() * 10 == START + 10
        track = bench.sampler.meters["uid-web"].containers["main"].track
        assert track.latest is not None
        assert track.latest.time == pytest.approx(START + 10)
        assert bench.sampler.has_news()
        assert len(bench.frame().pods) == 1
        assert not bench.sampler.has_news()
        running.cancel()


# A day, against every value kept.

SHAPES: dict[str, Callable[[random.Random, int], tuple[float, int]]] = {
    "idle": lambda chance, second: (0.001 * chance.random(), 5 * MB),
    "diurnal": lambda chance, second: (
        0.5 + 0.4 * math.sin(second / 13_750) + 0.05 * chance.random(),
        100 * MB + second % 3600 * 4096,
    ),
    "burst": lambda chance, second: (6.0 if chance.random() < 0.0005 else 0.05, second * 1024),
    "cron": lambda chance, second: (1.5, 300 * MB) if second % 3600 < 120 else (0.01, 20 * MB),
    "pegged": lambda chance, second: (2.0, 64 * MB),
    "walk": lambda chance, second: (
        abs(math.sin(second * 0.037) * math.sin(second * 0.0013)) + 0.01,
        round(200 * MB * (1.5 + math.sin(second * 0.0007))),
    ),
}


class Scripted(UsageSources):
    """Containers that use what a script says."""

    def __init__(self) -> None:
        super().__init__(None, "", list)
        self.used = dict.fromkeys(SHAPES, UsageReading(0, 0))

    def of_container(self, container: RuntimeContainer) -> UsageSource:
        return Line(self, container.name)


class Line:
    def __init__(self, script: Scripted, name: str) -> None:
        self._script = script
        self._name = name

    def read(self) -> UsageReading | None:
        return self._script.used[self._name]

    def close(self) -> None:
        pass


class Stepping:
    """A clock that is set, not waited for."""

    def __init__(self) -> None:
        self.seconds = 0

    def now(self) -> datetime:
        return datetime.fromtimestamp(START, UTC) + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return float(self.seconds)

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError

    async def give_way(self) -> None:
        raise NotImplementedError


DAY = 86_400


@pytest.mark.parametrize("name", SHAPES)
def test_point_29_a_day_of_every_shape_is_what_all_values_say(
    tmp_path: Path, machine: MeasuredMachine, name: str
) -> None:
    chance = random.Random(11)
    clock, script = Stepping(), Scripted()
    machine.run(name, name, began=START)
    pod = machine.known[f"uid-{name}"]
    meter = PodMeter(pod[0], TrackIndex(WindowFile(tmp_path / "usage", "b"), clock), script)
    meter.see(*pod)
    kept: list[tuple[float, int]] = []
    total = 0.0
    for second in range(1, DAY + 1201):
        clock.seconds = second
        cores, memory = SHAPES[name](chance, second)
        total += cores
        kept.append((cores, memory))
        # An agent that is gone for ten minutes looks at nothing.
        if 40_000 < second <= 40_600:
            continue
        script.used[name] = UsageReading(round(total * 1e9), memory)
        for each in meter.meters():
            each.sample(START + second, clock)
        if second % 10 == 0:
            meter.close((START + second) // 10)
    assert meter.total is not None
    check(name, tuple(meter.total.row()), kept)


def check(name: str, row: tuple[float, ...], kept: list[tuple[float, int]]) -> None:
    for at, resource in enumerate(CORE):
        values = [float(each[at]) for each in kept]
        values[40_000:40_600] = [math.nan] * 600
        for window, seconds in zip(WINDOWS, (10, 60, 3600, DAY), strict=True):
            known = [each for each in values[-seconds:] if not math.isnan(each)]
            ranked = known if seconds <= 60 else means(values[-seconds:])
            expected = {
                "mean": sum(known) / len(known),
                "max": max(known),
                "95th": sorted(ranked)[math.ceil(0.95 * len(ranked)) - 1],
            }
            slack = {"mean": 1e-3, "max": 1e-5, "95th": 1e-2 if window == "1d" else 1e-4}
            for statistic, value in expected.items():
                found = row[index(window, statistic, resource)]
                where = (name, window, statistic, resource)
                assert found == pytest.approx(value, rel=slack[statistic], abs=1e-4), where


def means(values: list[float]) -> list[float]:
    ticks = [values[at : at + 10] for at in range(0, len(values), 10)]
    return [sum(tick) / 10 for tick in ticks if not math.isnan(sum(tick))]
