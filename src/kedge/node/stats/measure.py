"""Measuring as a whole: from a node's configuration to what it publishes and answers."""

import asyncio
import functools
from collections.abc import Callable, Sequence
from typing import Protocol

from kedge.client.client import Client
from kedge.machinery.clock import Clock
from kedge.metrics.window_file import WindowFile
from kedge.node.config import NodeConfig
from kedge.node.host.machine import MachineInfo
from kedge.node.runtime.runtime import RuntimeLevel
from kedge.node.server import usage
from kedge.node.stats.meters import UsageSources
from kedge.node.stats.publisher import Publisher
from kedge.node.stats.readings import NodeReadings
from kedge.node.stats.sampler import PodSource, Sampler
from kedge.supervisor.kernel import cgroups
from kedge.web.message import HttpRequest, Response


class RuntimeProcess(Protocol):
    """What runs the containers."""

    @property
    def level(self) -> RuntimeLevel: ...

    @property
    def supervisor(self) -> int:
        """Its process, as it is now; 0 if there is none."""
        ...


async def measure(
    config: NodeConfig,
    machine: MachineInfo,
    runtime: RuntimeProcess,
    pods: PodSource,
    servers: Sequence[Client],
    clock: Clock,
    *,
    uid: Callable[[], str],
    tell: Callable[[Callable[[HttpRequest], Response | None]], None],
) -> None:
    """Until cancelled. `uid` is the node's; `tell` is told who answers questions about usage."""
    groups = cgroups.here() if runtime.level is RuntimeLevel.FULL else None
    store = await asyncio.to_thread(WindowFile, config.usage, machine.boot_id)
    sampler = Sampler(
        store,
        pods,
        UsageSources(groups, config.cgroup),
        clock,
        runtime=lambda: runtime.supervisor,
    )
    sampler.forget_strangers()
    raw = NodeReadings(
        sampler,
        groups,
        machine,
        node=config.name,
        state=config.state,
        images=config.images,
    )
    tell(functools.partial(usage.answer, now=raw))
    publisher = Publisher(
        sampler,
        servers,
        clock,
        node=config.name,
        uid=uid,
        resolution=config.metrics_resolution,
    )
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(sampler.run())
        tasks.create_task(publisher.run())
