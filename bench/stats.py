"""Measure the cost of usage metrics for a node: processor time and memory by number of containers.

Rounds: cgroups that are plain files and change each second, by a page or by a twentieth; and
cgroups of the kernel, with a process in each that sleeps, works on a few pages each second, or
grows or shrinks by a twentieth each second (needs root; nothing is left behind). Time is simulated
except where the kernel counts: a minute of a node is the cost of sixty calls of the sampler.
"""

import argparse
import contextlib
import gc
import mmap
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple, NoReturn, Protocol

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.model import ObjectMeta
from kedge.metrics.frame_codec import decode, encode
from kedge.metrics.window_file import WindowFile
from kedge.metrics.windows import TICK_SECONDS
from kedge.node.pod.runtime_cache import PodRuntimeState, pod_runtime_state
from kedge.node.runtime.runtime import PodSandbox, RunState, RuntimeContainer
from kedge.node.stats.meters import UsageSources
from kedge.node.stats.publisher import SPREAD
from kedge.node.stats.sampler import Sampler
from kedge.supervisor.kernel import cgroups
from kedge.supervisor.kernel.cgroups import Cgroups, Hierarchy

ROOT = "/kedge-bench-stats"
START = 1_900_000_000
HOUR = 3600
DAY = 86_400
FEW = 16 << 10
TWENTIETH = 512 << 10


class Clock:
    """A clock that moves only when the benchmark sets it."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(START + self.seconds, UTC)

    def monotonic(self) -> float:
        return 1000 + self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    async def give_way(self) -> None:
        pass


class Pods:
    """Pods of one container each."""

    def __init__(self, count: int) -> None:
        self.seen: dict[str, tuple[Pod, PodRuntimeState]] = {}
        for number in range(count):
            uid = f"{number:08d}-aaaa-bbbb-cccc-ddddeeeeffff"
            meta = ObjectMeta(name=f"web-5d9c-{number:05d}", namespace="shop", uid=uid)
            sandbox = PodSandbox(id=f"s{number}", namespace="shop", name=meta.name, uid=uid)
            container = RuntimeContainer(
                id=f"c{number}",
                sandbox=sandbox.id,
                name="main",
                state=RunState.RUNNING,
                started_at=number + 1,
                cgroup=f"{ROOT}/pod{uid}/c{number}",
            )
            self.seen[uid] = Pod(metadata=meta), pod_runtime_state([sandbox], [container])

    def pods(self) -> list[Pod]:
        return [pod for pod, _ in self.seen.values()]

    def version(self) -> tuple[int, int]:
        return id(self.seen), len(self.seen)

    def observed(self, uid: str) -> PodRuntimeState:
        return self.seen[uid][1]

    def groups(self) -> list[str]:
        return [seen.containers[0].cgroup for _, seen in self.seen.values()]


class Files:
    """Groups that are plain files, each of them changing all the time."""

    def __init__(self, directory: Path, groups: list[str], *, much: bool = False) -> None:
        """A page more each second, or `much`: a twentieth more or less."""
        self._much = much
        self.cgroups = Cgroups(
            [
                Hierarchy(str(directory / name), frozenset([name]), False)
                for name in ("cpuacct", "memory")
            ]
        )
        stat = Path("/sys/fs/cgroup/memory/memory.stat")
        lines = stat.read_text() if stat.exists() else "cache 1\n" * 30
        self._lines = lines.replace("total_inactive_file", "total_other") + "total_inactive_file "
        self._cpu = [directory / "cpuacct" / group.strip("/") for group in [*groups, ROOT, ""]]
        self._memory = [directory / "memory" / group.strip("/") for group in [*groups, ROOT, ""]]
        for path in (*self._cpu, *self._memory):
            path.mkdir(parents=True, exist_ok=True)

    def change(self, second: int) -> None:
        for number, path in enumerate(self._cpu):
            used = second * 1_000_000 * (number + 1)
            (path / "cpuacct.usage").write_text(f"{used}\n")
        for number, path in enumerate(self._memory):
            used = (number + 1) << 22
            used += used // 20 * (second % 2) if self._much else second << 12
            (path / "memory.usage_in_bytes").write_text(f"{used}\n")
            (path / "memory.stat").write_text(f"{self._lines}{second << 10}\n")


class UnifiedFiles:
    """Groups of cgroup v2 that are plain files, with details that change all the time: the traffic
    of disks, page faults and waiting for the processor."""

    def __init__(self, directory: Path, groups: list[str]) -> None:
        controllers = frozenset(["cpu", "memory", "io"])
        self.cgroups = Cgroups([Hierarchy(str(directory), controllers, True)])
        self._paths = [directory / group.strip("/") for group in [*groups, ROOT, ""]]
        for path in self._paths:
            path.mkdir(parents=True, exist_ok=True)

    def change(self, second: int) -> None:
        # Odd steps, so that rates differ from tick to tick.
        grown = second * 1000 + second % 97 * 4096
        for number, path in enumerate(self._paths):
            (path / "cpu.stat").write_text(f"usage_usec {second * 1000 * (number + 1)}\n")
            (path / "memory.current").write_text(f"{((number + 1) << 22) + (second << 12)}\n")
            faults = f"pgfault {grown}\npgmajfault {grown // 100}\n"
            (path / "memory.stat").write_text(f"anon 1\ninactive_file {second << 10}\n{faults}")
            traffic = f"rbytes={grown << 8} wbytes={grown << 9} rios={grown} wios={grown}"
            (path / "io.stat").write_text(f"8:0 {traffic} dbytes=0 dios=0\n")
            pressure = f"avg10=0.00 avg60=0.00 avg300=0.00 total={grown}\n"
            (path / "cpu.pressure").write_text(f"some {pressure}full {pressure}")


@contextlib.contextmanager
def real_groups(groups: list[str], stirred: int) -> Iterator[tuple[Cgroups, list[int]]]:
    """Groups of the kernel, and a process in each that waits to be sent SIGUSR1, and then gives
    back so much of its memory, or takes it again."""
    here = cgroups.here()
    made = [here.group(path) for path in groups]
    inside: list[int] = []
    # They are born with it.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    try:
        for group in made:
            group.make()
            inside.append(os.fork() or _live(stirred))
            for door in group.procs_files():
                Path(door).write_text(str(inside[-1]))
            os.kill(inside[-1], signal.SIGUSR1)
        yield here, inside
    finally:
        for pid in inside:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        here.group(ROOT).remove()


def _live(stirred: int) -> NoReturn:
    """Each time a signal comes, use the processor, and so much more or less of ten megabytes."""
    # By the first signal it is in its group, for which all that it uses then counts.
    signal.sigwait([signal.SIGUSR1])
    held = mmap.mmap(-1, 10 << 20)
    held.write(bytes(10 << 20))
    while True:
        signal.sigwait([signal.SIGUSR1])
        held.madvise(mmap.MADV_DONTNEED, 0, stirred)
        signal.sigwait([signal.SIGUSR1])
        held[:stirred] = bytes(stirred)


class Stirred:
    """Processes whose usage the benchmark changes each second."""

    def __init__(self, pids: list[int]) -> None:
        self._pids = pids

    def change(self, second: int) -> None:
        for pid in self._pids:
            os.kill(pid, signal.SIGUSR1)
        # Until all of them have; none takes a tenth of this.
        time.sleep(0.05)


class Changing(Protocol):
    def change(self, second: int) -> None: ...


def resident() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    return 0


class Round:
    """A sampler, and what it took."""

    def __init__(self, directory: Path, groups: Cgroups, pods: Pods) -> None:
        self.clock = Clock()
        store = WindowFile(directory / "usage", "boot")
        sources = UsageSources(groups, ROOT, list)
        self.sampler = Sampler(store, pods, sources, self.clock, runtime=os.getppid)

    def take(self, second: int) -> None:
        self.clock.seconds = second
        self.sampler.take(START + second)

    def grow_old(self) -> None:
        """An hour passes, so that there is something that each tick takes the place of."""
        for second in range(TICK_SECONDS, HOUR, TICK_SECONDS):
            self.take(second)

    def minute(self, begin: int, files: Changing | None, publish: int) -> float:
        """Processor seconds of one minute, published every so many seconds."""
        spent = 0.0
        for second in range(begin, begin + 60):
            if files is not None:
                files.change(second)
            before = time.process_time()
            self.take(second)
            if second % publish == 0:
                encode(self.sampler.frame("n1", "u", publish))
            spent += time.process_time() - before
        return spent


class Day(NamedTuple):
    """Bytes that the windows of a day take."""

    resident: int
    file: int
    frame: int


def whole_day(count: int, *, details: bool) -> Day:
    """To be called in a process of its own, which has not used and freed other memory. `details`
    says whether these change too."""
    with tempfile.TemporaryDirectory() as place:
        directory, pods = Path(place), Pods(count)
        made = UnifiedFiles if details else Files
        files = made(directory / "day", pods.groups())
        files.change(1)
        gc.collect()
        before = resident()
        round_ = Round(directory, files.cgroups, pods)
        # Ticks far apart touch every page of a day too. Over more than a minute, details have
        # no rate.
        end, step = (DAY + HOUR, 60) if details else (3 * DAY, 600)
        for second in (*range(10, end, step), *range(end, end + 60)):
            if details:
                files.change(second)
            round_.take(second)
        frame = encode(round_.sampler.frame("n1", "u", 10))
        assert len(decode(frame).pods) == count
        gc.collect()
        return Day(resident() - before, (directory / "usage").stat().st_size, len(frame))


def memory(count: int, *, details: bool) -> None:
    """Print the memory that containers add to a node without any."""
    days = []
    for number in (0, count):
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            days.append(process.submit(whole_day, number, details=details).result())
    none, all_ = days
    added = (all_.resident - none.resident) / count
    which = "of which seven details change" if details else "whose details are 0"
    print(f"memory after a day        {added / 1000:8.1f} KB per container {which} (budget 60)")
    print(f"and for the node itself   {none.resident / 1000:8.1f} KB")
    print(f"file                      {all_.file / count / 1000:8.1f} KB per container")
    print(f"frame                     {all_.frame / 1000:8.1f} KB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--containers", type=int, default=100)
    parser.add_argument("--minutes", type=int, default=3)
    chosen = parser.parse_args()
    count = chosen.containers
    gc.set_threshold(20_000, 20, 50)
    print(f"{count} containers, load {os.getloadavg()[0]:.1f}")
    memory(count, details=False)
    memory(count, details=True)
    print("processor seconds per minute, at best (budget 0.10 per 100 containers)")
    pods = Pods(count)
    for what, much in (("files, a page a second", False), ("files, a twentieth", True)):
        with tempfile.TemporaryDirectory() as place:
            files = Files(Path(place), pods.groups(), much=much)
            files.change(1)
            show(what, Round(Path(place), files.cgroups, pods), files, chosen.minutes)
    print(
        f"first document            {first_document():8.1f} s after a start, at worst (budget 12)"
    )
    if os.geteuid():
        return
    kernels("the kernel's, idle", pods, 0, chosen.minutes)
    kernels("the kernel's, all work", pods, FEW, chosen.minutes)
    kernels("the kernel's, a twentieth", pods, TWENTIETH, chosen.minutes)


def kernels(what: str, pods: Pods, stirred: int, minutes: int) -> None:
    """A round of the kernel's own groups, in which so much memory is other each second."""
    groups = real_groups(pods.groups(), stirred)
    with tempfile.TemporaryDirectory() as place, groups as (here, pids):
        round_ = Round(Path(place), here, pods)
        show(what, round_, Stirred(pids) if stirred else None, minutes)
        print(f"    (their three files, each second, and no more: {reading(here, pods):.3f})")


def first_document() -> float:
    """Seconds from the start of a container to the sending of its first document, at the worst of
    all moments to start."""
    worst = 0.0
    for start in range(10):
        pods = Pods(1)
        with tempfile.TemporaryDirectory() as place:
            files = Files(Path(place), pods.groups())
            files.change(1)
            seen, pods.seen = pods.seen, {}
            round_ = Round(Path(place), files.cgroups, pods)
            sampler, second = round_.sampler, 100 + start
            for passed in range(20, second):
                round_.take(passed)
            # It starts just after a second's sample.
            pods.seen = seen
            while not sampler.has_news():
                files.change(second)
                round_.take(second)
                second += 1
            worst = max(worst, second - (100 + start) + SPREAD)
    return worst


def show(what: str, round_: Round, files: Changing | None, minutes: int) -> None:
    round_.grow_old()
    begins = iter(range(HOUR, HOUR + 60 * 2 * minutes, 60))
    for publish in (60, 10):
        spent = [round_.minute(next(begins), files, publish) for _ in range(minutes)]
        shown = f"{min(spent):.3f}, mostly {statistics.median(spent):.3f}"
        print(f"  {what:24} {shown}  published every {publish} s")


def reading(groups: Cgroups, pods: Pods) -> float:
    """Processor seconds that it takes to read all files of all containers each second of a minute,
    by descriptors that are kept: what anybody has to pay who looks at all of them."""
    names = (
        (groups.place("cpuacct") or groups.unified, ("cpuacct.usage", "cpu.stat")),
        (groups.place("memory"), ("memory.usage_in_bytes", "memory.current")),
        (groups.place("memory"), ("memory.stat", "memory.stat")),
    )
    opened = [
        os.open(f"{place.place}{group}/{either[place.unified]}", os.O_RDONLY)
        for group in pods.groups()
        for place, either in names
        if place is not None
    ]
    before = time.process_time()
    for _ in range(60):
        for descriptor in opened:
            os.pread(descriptor, 4096, 0)
    spent = time.process_time() - before
    for descriptor in opened:
        os.close(descriptor)
    return spent


if __name__ == "__main__":
    main()
