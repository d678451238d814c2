"""A driver for tests: what it is asked it writes down, and how it behaves is in files.

python gadget_driver.py DIRECTORY KUBELET: in DIRECTORY, `refuse` holds the words with which it
refuses to prepare, `slow` makes it hang in `prepare` after its work is done, `sick` holds the
devices that are not well; `calls` is what it writes, and `prepared` has a file for each claim.
"""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from kedge.dra import (
    HEALTHY_DEVICE,
    UNHEALTHY_DEVICE,
    AllocatedClaim,
    CdiMount,
    ClaimReference,
    ContainerEdits,
    Device,
    DeviceAttribute,
    DeviceHealth,
    DeviceIdentifier,
    Driver,
    PreparedDevice,
    Refused,
)
from kedge.machinery.clock import SystemClock

COLORS = {"g-0": "red", "g-1": "green", "g-2": "blue"}


class GadgetDriver(Driver):
    name = "gadget.example.com"
    wants_environment = True

    def __init__(self, directory: Path) -> None:
        super().__init__(node=os.environ.get("NODE_NAME", "node-1"))
        self.directory = directory
        self.prepared = directory / "prepared"
        self.prepared.mkdir(exist_ok=True)

    def devices(self) -> Sequence[Device]:
        return [
            Device(name=name, attributes={"color": DeviceAttribute(string=color)})
            for name, color in COLORS.items()
        ]

    def health(self) -> Sequence[DeviceHealth]:
        sick = self.read("sick").split()
        return [
            DeviceHealth(
                device=DeviceIdentifier(pool_name=self.node, device_name=name),
                health=UNHEALTHY_DEVICE if name in sick else HEALTHY_DEVICE,
                message="it is too hot" if name in sick else "",
            )
            for name in COLORS
        ]

    async def prepare(self, claim: AllocatedClaim) -> Sequence[PreparedDevice]:
        self.note("prepare", claim.name, env=[dict(each.env) for each in claim.containers])
        if words := self.read("refuse"):
            raise Refused(words)
        (self.prepared / claim.uid).write_text(claim.name)
        settings = {k: v for each in claim.devices for p in each.parameters for k, v in p.items()}
        ids = self.cdi.write(
            claim.uid,
            {
                each.device: ContainerEdits(
                    env={f"GADGET_{each.request.upper()}": each.device, **settings},
                    mounts=[
                        CdiMount(
                            container_path=f"/gadgets/{each.device}",
                            host_path=str(self.prepared),
                            read_only=True,
                        )
                    ],
                )
                for each in claim.devices
            },
        )
        while (self.directory / "slow").exists():
            await SystemClock().sleep(0.05)
        return [
            PreparedDevice(
                request_names=[each.request],
                pool_name=each.pool,
                device_name=each.device,
                cdi_device_ids=[ids[each.device]],
            )
            for each in claim.devices
        ]

    async def unprepare(self, claim: ClaimReference) -> None:
        self.note("unprepare", claim.name)
        await super().unprepare(claim)
        (self.prepared / claim.uid).unlink(missing_ok=True)

    def read(self, name: str) -> str:
        file = self.directory / name
        return file.read_text() if file.exists() else ""

    def note(self, call: str, claim: str, **more: object) -> None:
        with open(self.directory / "calls", "a") as log:
            log.write(json.dumps({"call": call, "claim": claim, **more}) + "\n")

    async def watch_files(self) -> None:
        before = self.read("sick")
        while True:
            await SystemClock().sleep(0.1)
            if (now := self.read("sick")) != before:
                before = now
                self.changed()


async def main(directory: str, kubelet: str) -> None:
    driver = GadgetDriver(Path(directory))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(driver.serve(kubelet))
        tasks.create_task(driver.watch_files())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
