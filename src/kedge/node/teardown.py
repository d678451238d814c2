"""The end of a node: everything that its agent and its supervisor had on this machine goes."""

import asyncio
import contextlib
from pathlib import Path

from kedge.machinery.clock import SystemClock
from kedge.node import record
from kedge.node.cgroups.tree import PodTree
from kedge.node.network.bridge import Bridge
from kedge.node.runtime import channel
from kedge.node.runtime.runtime import RuntimeFailure
from kedge.node.volumes.mounts import take_down
from kedge.supervisor import cgroups


def teardown(directory: Path) -> None:
    """Leave nothing of the node in this directory behind but its files; its agent has ended.

    Works also after everything of it was killed.
    """
    # Not by the record alone: an agent that never got as far as writing one has begun all the same.
    runtime, network = directory / "runtime", directory / "network"
    if runtime.exists():
        asyncio.run(_end_containers(runtime))
    if (network / "network").exists():
        asyncio.run(Bridge.find(network).remove())
    known = record.read(directory)
    if known is not None and known.cgroup:
        PodTree(cgroups.here(), known.cgroup, 0, 0).remove_all()
    take_down(directory / "pods")
    take_down(directory / "memory")


async def _end_containers(runtime: Path) -> None:
    with contextlib.suppress(RuntimeFailure, OSError):
        # One that was killed is started again, since only a supervisor knows what to clean up.
        connected = await channel.connect(runtime, SystemClock())
        await connected.ask("shutdown")
        connected.close()
