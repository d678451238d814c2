"""A device plugin for tests: what it is asked it writes down, and how it behaves is in files.

python gadget.py DIRECTORY PLUGINS: in DIRECTORY, `refuse` holds the words with which it refuses to
let containers start, `keep` those with which it refuses to take devices back, `sick` the devices
that are not well; `calls` is what it writes.
"""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import asdict

from kedge.deviceplugin import (
    HEALTHY,
    UNHEALTHY,
    ContainerAllocateResponse,
    Device,
    DeviceSpec,
    Mount,
    Owner,
    Plugin,
    Refused,
)
from kedge.machinery.clock import SystemClock


class Gadget(Plugin):
    resource = "example.com/gadget"

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory
        (directory / "data").mkdir(exist_ok=True)
        (directory / "data" / "name").write_text("gadget\n")

    def devices(self) -> Sequence[Device]:
        sick = self.read("sick").split()
        return [
            Device(each, UNHEALTHY if each in sick else HEALTHY) for each in ("g-0", "g-1", "g-2")
        ]

    async def allocate(self, ids: Sequence[str], owner: Owner | None) -> ContainerAllocateResponse:
        self.note("allocate", ids, owner)
        return ContainerAllocateResponse(
            envs={"GADGETS": ",".join(ids), "A": "of the plugin"},
            mounts=[
                Mount(
                    container_path="/gadget",
                    host_path=str(self.directory / "data"),
                    read_only=True,
                )
            ],
            devices=[
                DeviceSpec(container_path="/dev/gadget", host_path="/dev/fuse", permissions="rw")
            ],
            annotations={"example.com/gadget": "yes"},
        )

    async def pre_start(
        self, ids: Sequence[str], env: Mapping[str, str], owner: Owner | None
    ) -> None:
        self.note("pre_start", ids, owner, env=dict(env))
        if words := self.read("refuse"):
            raise Refused(words)

    async def release(self, ids: Sequence[str], owner: Owner | None) -> None:
        self.note("release", ids, owner)
        if words := self.read("keep"):
            raise Refused(words)

    def read(self, name: str) -> str:
        path = self.directory / name
        return path.read_text() if path.exists() else ""

    def note(self, what: str, ids: Sequence[str], owner: Owner | None, **more: object) -> None:
        assert owner is not None
        with open(self.directory / "calls", "a") as calls:
            entry = {"call": what, "ids": list(ids), **asdict(owner), **more}
            calls.write(f"{json.dumps(entry)}\n")

    async def follow(self) -> None:
        known = self.devices()
        while True:
            await SystemClock().sleep(0.05)
            if known != (now := self.devices()):
                known = now
                self.changed()


async def main(directory: str, plugins: str) -> None:
    gadget = Gadget(Path(directory))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(gadget.follow())
        tasks.create_task(gadget.serve(plugins))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
