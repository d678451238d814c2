"""A scripted device plugin, and a node's device registry for it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.deviceplugin import ContainerAllocateResponse, Device, Owner, Plugin
from kedge.deviceplugin.messages import DevicePluginOptions
from kedge.machinery.clock import Clock, SystemClock
from kedge.node.devices.devices import NodeDevices
from kedge.testing.clock import FakeClock
from kedge.testing.pods import pod_document

RESOURCE_NAME = "example.com/d"
PATIENCE = 60.0
"""Seconds that something may take which happens over real sockets."""


async def until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Return when something has become true. Raises TimeoutError after so many real seconds."""
    async with asyncio.timeout(seconds):
        while not condition():
            await SystemClock().sleep(0.005)


class ScriptedPlugin(Plugin):
    """Records calls; responds, fails and hangs as the test scripts it."""

    def __init__(
        self,
        resource: str = RESOURCE_NAME,
        ids: Sequence[str] = ("d-0", "d-1"),
        *,
        options: DevicePluginOptions | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(resource, clock=clock)
        self.offered = [Device(each) for each in ids]
        self.told_options = options or DevicePluginOptions()
        self.answer = ContainerAllocateResponse()
        self.preferred: Sequence[str] = ()
        self.failures: dict[str, Exception] = {}
        """By method: what it fails with."""
        self.gates: dict[str, asyncio.Event] = {}
        """By method: what it waits for."""
        self.calls: list[tuple[str, tuple[str, ...]]] = []
        self.environments: list[dict[str, str]] = []
        self.owners: list[Owner | None] = []

    def offer(self, *devices: Device) -> None:
        """Have these devices from now on."""
        self.offered = list(devices)
        self.changed()

    @property
    def options(self) -> DevicePluginOptions:
        return self.told_options

    def devices(self) -> Sequence[Device]:
        return self.offered

    async def allocate(self, ids: Sequence[str], owner: Owner | None) -> ContainerAllocateResponse:
        self.owners.append(owner)
        await self._called("allocate", ids)
        return self.answer

    async def pre_start(
        self, ids: Sequence[str], env: Mapping[str, str], owner: Owner | None
    ) -> None:
        self.environments.append(dict(env))
        await self._called("pre_start", ids)

    async def prefer(
        self, available: Sequence[str], included: Sequence[str], size: int
    ) -> Sequence[str]:
        await self._called("prefer", [*available, "|", *included, "|", str(size)])
        return self.preferred

    async def release(self, ids: Sequence[str], owner: Owner | None) -> None:
        await self._called("release", ids)

    async def _called(self, method: str, ids: Sequence[str]) -> None:
        self.calls.append((method, tuple(ids)))
        if method in self.gates:
            await self.gates[method].wait()
        if method in self.failures:
            raise self.failures[method]

    def count(self, method: str) -> int:
        return sum(name == method for name, _ in self.calls)


class StageTasks:
    """Programs that begin and end as the test says."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self._tasks: dict[object, asyncio.Task[None]] = {}

    async def passing(
        self, condition: Callable[[], object], step: float = 1.0, pause: float = 1.0
    ) -> None:
        """Let time pass until something has become true: steps, with up to `pause` real seconds
        between them. A step must not pass while a message over a real socket is under way, or it
        would count as late. So the usual pause is as long as the step."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                await self.clock.advance(step)
                with contextlib.suppress(TimeoutError):
                    await until(condition, pause)

    def _run(self, what: object, work: Any) -> None:
        # This object owns the task: `_stop` ends it.
        self._tasks[what] = asyncio.get_running_loop().create_task(work)

    async def _stop(self, what: object) -> None:
        task = self._tasks.pop(what)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def close(self) -> None:
        for what in list(self._tasks):
            await self._stop(what)


class DeviceStage(StageTasks):
    """The device registry of a node, and plugins that register and stop."""

    def __init__(self, directory: Path) -> None:
        super().__init__(FakeClock())
        self.directory = directory / "device-plugins"
        self.own = directory / "own"
        self.cdi = directory / "specs"
        self.node_told = 0
        self.pods_told: list[str] = []
        self.pods: list[Pod] = []
        self.removed: set[str] = set()
        """The uids of pods that the API does not have any more."""
        self.devices: NodeDevices

    async def begin(self, **options: Any) -> NodeDevices:
        """The agent begins, for the first time or again."""
        self.devices = NodeDevices(
            self.directory, self.own, self.clock, cdi_directories=[self.cdi], **options
        )
        self.devices.connect(
            self._tell_node,
            self.pods_told.append,
            lambda: self.pods,
            lambda uid: uid not in self.removed,
        )
        self._run(self.devices, self.devices.run())
        await until((self.directory / "kubelet.sock").exists)
        return self.devices

    def _tell_node(self) -> None:
        self.node_told += 1

    async def end(self) -> None:
        """The agent dies."""
        await self._stop(self.devices)

    async def plug(self, plugin: ScriptedPlugin, *, wait: bool = True) -> ScriptedPlugin:
        """A plugin begins."""
        self._run(plugin, plugin.serve(self.directory))
        if wait:
            await until(plugin.registered.is_set)
            await until(lambda: self.devices.amounts().get(plugin.resource, (0,))[0])
        return plugin

    async def unplug(self, plugin: ScriptedPlugin) -> None:
        """It dies."""
        await self._stop(plugin)


@contextlib.asynccontextmanager
async def device_stage(directory: Path) -> AsyncIterator[DeviceStage]:
    stage = DeviceStage(directory)
    try:
        yield stage
    finally:
        await stage.close()


def pod_with(*amounts: int, uid: str = "u", resource: str = RESOURCE_NAME, **spec: Any) -> Pod:
    """A pod whose containers c0, c1, ... ask for so many devices."""
    containers = [
        {"name": f"c{i}", "image": "i", "resources": {"limits": {resource: str(amount)}}}
        for i, amount in enumerate(amounts)
    ]
    document = pod_document(
        metadata={"name": f"pod-{uid}", "namespace": "default", "uid": uid},
        spec={"containers": containers, **spec},
    )
    return RESOURCE.from_document(document)
