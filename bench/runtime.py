"""How fast containers start, run commands and end: the embedded runtime by itself, as a table.

Each figure is what a caller of the runtime's protocol waits. Needs root, and leaves nothing behind.
"""

import argparse
import asyncio
import statistics
import tempfile
from collections.abc import Awaitable, Collection
from pathlib import Path
from time import perf_counter
from typing import TypeVar

from kedge.node.images.image import HOST_IMAGE, LocalImage
from kedge.node.runtime.embedded import EmbeddedRuntime
from kedge.node.runtime.runtime import ContainerConfig, ContainerLimits, SandboxConfig

PODS = "/kedge/bench-runtime"
LIMITS = ContainerLimits(
    cpu_shares=102, cpu_quota=50_000, memory_limit=128 << 20, oom_score_adj=1000
)
T = TypeVar("T")


class Machine:
    """An image store that has the machine's own file system only."""

    def get(self, id_: str) -> LocalImage | None:
        return HOST_IMAGE

    def hold(self, id_: str, container: str) -> None: ...

    def release(self, container: str) -> None: ...

    def release_others(self, containers: Collection[str]) -> None: ...


class Bench:
    """A runtime, and how long it took."""

    def __init__(self, runtime: EmbeddedRuntime, logs: Path) -> None:
        self._runtime = runtime
        self._logs = logs
        self._pods = 0
        self.taken: dict[str, list[float]] = {}

    async def timed(self, what: str, deed: Awaitable[T]) -> T:
        began = perf_counter()
        result = await deed
        self.taken.setdefault(what, []).append(1000 * (perf_counter() - began))
        return result

    async def start(self, prefix: str = "") -> tuple[str, str]:
        """A pod with one container; its sandbox and container."""
        self._pods += 1
        name = f"pod{self._pods}"
        spec = SandboxConfig(
            namespace="bench",
            name=name,
            uid=name,
            hostname=name,
            log_directory=str(self._logs / name),
            cgroup_parent=f"{PODS}/{name}",
        )
        sandbox = await self.timed(f"{prefix}run a sandbox", self._runtime.run_sandbox(spec))
        wanted = ContainerConfig(
            name="main",
            image="host",
            command=["sleep", "100000"],
            log_path="main/0.log",
            resources=LIMITS,
        )
        creating = self._runtime.create_container(sandbox.id, wanted)
        container = await self.timed(f"{prefix}create a container", creating)
        await self.timed(f"{prefix}start it", self._runtime.start_container(container))
        return sandbox.id, container

    async def one(self) -> None:
        sandbox, container = await self.start()
        spec = ContainerConfig(name="next", image="host", command=["sleep", "1"], resources=LIMITS)
        following = await self._runtime.create_container(sandbox, spec)
        await self.timed("start the next one", self._runtime.start_container(following))
        await self.timed("run a command in it", self._runtime.execute(container, ["true"], 10))
        await self.timed("stop it", self._runtime.stop_container(container, 0))
        await self.timed("remove the sandbox", self._runtime.remove_sandbox(sandbox))

    async def many(self, number: int) -> None:
        """So many at once, and how heavy the supervisor is with them."""
        whole = self.timed(f"start {number} at once, all", self._all(number))
        sandboxes = [sandbox for sandbox, _ in await whole]
        print(f"supervisor with {number} containers: {self.weight():.1f} MB")
        async with asyncio.TaskGroup() as group:
            for sandbox in sandboxes:
                group.create_task(self._runtime.remove_sandbox(sandbox))

    async def _all(self, number: int) -> list[tuple[str, str]]:
        async with asyncio.TaskGroup() as group:
            started = [group.create_task(self.start("at once: ")) for _ in range(number)]
        return [each.result() for each in started]

    def weight(self) -> float:
        """Return the memory of the supervisor in megabytes."""
        status = Path(f"/proc/{self._runtime.supervisor}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024


async def measure(flags: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as directory:
        runtime = await EmbeddedRuntime.open(Path(directory) / "runtime", Machine())
        bench = Bench(runtime, Path(directory) / "logs")
        try:
            print(f"level {runtime.level}; supervisor, idle: {bench.weight():.1f} MB")
            for _ in range(flags.rounds):
                await bench.one()
            await bench.many(flags.many)
        finally:
            await runtime.shutdown()
    report(bench.taken)


def report(taken: dict[str, list[float]]) -> None:
    print(f"{'':32}{'median ms':>10}{'best ms':>10}{'worst ms':>10}")
    for what, times in taken.items():
        figures = (statistics.median(times), min(times), max(times))
        print(f"{what:32}" + "".join(f"{figure:10.1f}" for figure in figures))


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--rounds", type=int, default=20, help="containers one after the other")
    flags.add_argument("--many", type=int, default=30, help="containers at once")
    asyncio.run(measure(flags.parse_args()))


if __name__ == "__main__":
    main()
