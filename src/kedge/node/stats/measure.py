"""Starts everything that measures usage on a node, from its configuration."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Protocol

from kedge.client.client import Client
from kedge.machinery.clock import Clock
from kedge.metrics.window_file import WindowFile
from kedge.node.config import NodeConfig
from kedge.node.host.machine import MachineInfo
from kedge.node.server import usage
from kedge.node.stats import cgroup
from kedge.node.stats.claim_usage import ClaimUsage, MountedVolumes
from kedge.node.stats.disk_usage import DiskUsage
from kedge.node.stats.meters import UsageSources
from kedge.node.stats.publisher import Publisher
from kedge.node.stats.readings import NodeReadings
from kedge.node.stats.sampler import DiskPlaces, PodSource, Sampler
from kedge.supervisor.kernel.cgroups import Cgroups
from kedge.web.message import HttpRequest, Response


class RuntimeProcess(Protocol):
    """The runtime, and the process that runs its containers."""

    @property
    def cgroups(self) -> Cgroups | None:
        """The control groups of its containers; None if they have none."""
        ...

    @property
    def supervisor(self) -> int:
        """The current process id; 0 if there is none."""
        ...


async def measure(
    config: NodeConfig,
    machine: MachineInfo,
    runtime: RuntimeProcess,
    pods: PodSource,
    servers: Sequence[Client],
    clock: Clock,
    *,
    places: DiskPlaces,
    volumes: MountedVolumes,
    uid: Callable[[], str],
    tell: Callable[[Callable[[HttpRequest], Response | None]], None],
) -> None:
    """Measure until cancelled. `places` has the directories that pods write to, `volumes` what they
    have mounted; `uid` returns that of the node; `tell` gets the handler of requests for usage."""
    groups = runtime.cgroups
    if groups is not None:
        # Also before the first pod: other nodes of this machine count the node by its group.
        with contextlib.suppress(OSError):
            groups.group(config.cgroup).make()
        if None in cgroup.places(groups):
            # Some controllers are not delegated: usage is that of processes.
            groups = None
    disk = DiskUsage(clock)
    claims = ClaimUsage(volumes, disk, clock)
    windows = await asyncio.to_thread(WindowFile, config.usage, machine.boot_id)
    sampler = Sampler(
        windows,
        pods,
        UsageSources(
            groups, config.cgroup, config.sibling_cgroups, state=str(config.state), disk=disk
        ),
        clock,
        runtime=lambda: runtime.supervisor,
        claims=claims,
    )
    sampler.release_unused()
    readings = NodeReadings(
        sampler,
        groups,
        machine,
        node=config.name,
        state=config.state,
        images=config.images,
        claims=claims,
    )
    tell(usage.handler(readings, sampler, config.name, uid))
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
        tasks.create_task(claims.run())
        tasks.create_task(disk.run(lambda: chain(sampler.disk_subjects(places), claims.subjects())))
        tasks.create_task(publisher.run())
