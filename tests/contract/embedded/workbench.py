"""A real runtime, and short ways to what tests do with it and see of it."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from kedge.node.images.image import HOST_IMAGE, LocalImage
from kedge.node.runtime.embedded import EmbeddedRuntime
from kedge.node.runtime.runtime import (
    ContainerConfig,
    PodSandbox,
    RuntimeContainer,
    SandboxConfig,
)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
GROUPS = f"/kedge-test-{os.getpid()}"


class Images:
    """The machine itself, and whatever a test adds."""

    def __init__(self) -> None:
        self.known = {"host": HOST_IMAGE}
        self.held: dict[str, str] = {}

    def get(self, id_: str) -> LocalImage | None:
        return self.known.get(id_)

    def hold(self, id_: str, container: str) -> None:
        self.held[container] = id_

    def release(self, container: str) -> None:
        self.held.pop(container, None)

    def release_others(self, containers: Collection[str]) -> None:
        self.held = {each: id_ for each, id_ in self.held.items() if each in containers}


class Bench:
    """A runtime with short ways to what tests do most."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.images = Images()
        self.runtime: EmbeddedRuntime
        self._containers = 0

    async def open(self) -> None:
        self.runtime = await EmbeddedRuntime.open(self.directory / "runtime", self.images)

    async def pod(self, name: str = "pod", **more: Any) -> PodSandbox:
        spec = SandboxConfig(
            namespace="default",
            name=name,
            uid=f"uid-of-{name}",
            log_directory=str(self.directory / "logs" / name),
            cgroup_parent=f"{GROUPS}/{name}",
            **{"hostname": name, **more},
        )
        return await self.runtime.run_sandbox(spec)

    async def create(self, sandbox: PodSandbox, *argv: str, **more: Any) -> str:
        self._containers += 1
        name = f"c{self._containers}"
        spec = ContainerConfig(
            **{"name": name, "image": "host", "command": argv, "log_path": f"{name}.log", **more}
        )
        return await self.runtime.create_container(sandbox.id, spec)

    async def start(self, sandbox: PodSandbox, *argv: str, **more: Any) -> str:
        container = await self.create(sandbox, *argv, **more)
        await self.runtime.start_container(container)
        return container

    async def ended(self, container: str) -> RuntimeContainer:
        """The container after it has ended by itself."""
        connected = await self.runtime._connected()
        await connected.ask("wait", container=container)
        return await self.runtime.container(container)

    async def run(self, *argv: str, **more: Any) -> tuple[RuntimeContainer, str]:
        """A pod with one container that runs to its end, and what it said."""
        pod = {key: more.pop(key) for key in list(more) if key in SandboxConfig.__struct_fields__}
        more |= {key: pod.pop(key) for key in ("annotations", "labels") if key in pod}
        sandbox = await self.pod(f"run{self._containers}", **pod)
        container = await self.ended(await self.start(sandbox, *argv, **more))
        text = self.said(container)
        await self.runtime.remove_sandbox(sandbox.id)
        return container, text

    async def shell(self, script: str, **more: Any) -> str:
        """What a script says in a container of its own."""
        return (await self.run("sh", "-c", script, **more))[1]

    def said(self, container: RuntimeContainer) -> str:
        lines = Path(container.log_path).read_text().splitlines()
        return "".join(line.split(" ", 3)[3] + "\n" for line in lines)


def mounts() -> set[str]:
    return {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}


def groups_left() -> list[Path]:
    return list(Path("/sys/fs/cgroup").glob(f"*{GROUPS}"))


def containers_left() -> list[Path]:
    """Groups of containers; those of their pods stay as long as the pods do."""
    return [each for each in Path("/sys/fs/cgroup").glob(f"*{GROUPS}/*/*") if each.is_dir()]


def processes_in(group: str) -> set[int]:
    doors = Path("/sys/fs/cgroup").glob(f"*{group}/cgroup.procs")
    return {int(pid) for door in doors for pid in door.read_text().split()}


def descriptors_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def resident_of(pid: int) -> int:
    """Kilobytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


def lines_of(container: RuntimeContainer) -> list[list[str]]:
    """Stream, tag and text of each line of a log."""
    lines = Path(container.log_path).read_text().splitlines()
    return [line.split(" ", 3)[1:] for line in lines]


def small_root(directory: Path, *programs: str) -> Path:
    """A root with a few of the machine's programs, and the libraries that they need."""
    for program in programs:
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
        words = listed.stdout.split()
        for path in [program, *(word for word in words if word.startswith("/"))]:
            target = directory / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    return directory


def processes_below(directory: Path) -> list[str]:
    """Supervisors, and whatever has its files there."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            command = (each / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if str(directory) in command:
            found.append(command)
    return found


async def gone(pid: int) -> None:
    """Wait for a process that is no child of ours."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(descriptor, ended.set)
    try:
        async with asyncio.timeout(10):
            await ended.wait()
    finally:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)


async def read(descriptor: int, until: Callable[[bytes], bool] = lambda _: False) -> bytes:
    """What comes from a descriptor until its end, or until it is enough."""
    return await asyncio.to_thread(_read, descriptor, until)


def _read(descriptor: int, until: Callable[[bytes], bool]) -> bytes:
    os.set_blocking(descriptor, True)
    data = b""
    while not until(data):
        try:
            more = os.read(descriptor, 65_536)
        except OSError:
            break
        if not more:
            break
        data += more
    return data


async def until_said(bench: Bench, container: str, text: str) -> None:
    """Wait until the log holds a text."""
    known = await bench.runtime.container(container)
    async with asyncio.timeout(20):
        while text not in bench.said(known):
            await bench.runtime.execute(container, ["sleep", "0.02"], 10)


def write_all(descriptor: int, data: bytes) -> None:
    os.set_blocking(descriptor, True)
    while data:
        data = data[os.write(descriptor, data) :]
