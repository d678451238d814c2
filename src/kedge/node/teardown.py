"""The end of a node: everything that its agent and its supervisor had on this machine goes."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import Final

from kedge.machinery.clock import SystemClock
from kedge.node import record
from kedge.node.cgroups.tree import PodTree
from kedge.node.network.bridge import Bridge
from kedge.node.parts import VolumeFailure
from kedge.node.runtime import channel, spawn
from kedge.node.runtime.runtime import RuntimeFailure
from kedge.node.user_namespaces import void_claims
from kedge.node.volumes.mounts import take_down
from kedge.supervisor.kernel import cgroups

_SHUTDOWN_SECONDS: Final = 10.0
"""Seconds for a supervisor to end its containers: it waits 5 s for the slowest."""
_ATTEMPTS: Final = 3
_PAUSE: Final = 0.02


def teardown(directory: Path) -> str:
    """End everything of the node in this directory and keep only its files; its agent has ended.
    Returns what could not be ended.

    Also works after its processes were killed or stopped.
    """
    # Not by the record alone: an agent that never got as far as writing one has begun all the same.
    left: list[str] = []
    runtime, network = directory / "runtime", directory / "network"
    if runtime.exists():
        left.append(asyncio.run(_end_containers(runtime)))
    if (network / "network").exists():
        asyncio.run(Bridge.find(network).remove())
    known = record.read(directory)
    if known is not None and known.cgroup:
        tree = PodTree(cgroups.here(), known.cgroup, 0, 0)
        if not tree.remove_all():
            left.append(f"processes in the control group {known.cgroup} do not end")
    for place in (directory / "pods", directory / "memory"):
        try:
            take_down(place)
        except VolumeFailure as failure:
            left.append(str(failure))
    if not any(left):
        void_claims(directory / "pods")
    return "; ".join(filter(None, left))


async def _end_containers(runtime: Path) -> str:
    """Tell the supervisor to end all containers and itself; returns the problem if that failed."""
    problem = ""
    for _ in range(_ATTEMPTS):
        try:
            # A killed supervisor is restarted: only a supervisor knows what to clean up.
            async with asyncio.timeout(_SHUTDOWN_SECONDS):
                connected = await channel.connect(runtime, SystemClock())
                try:
                    await connected.ask("shutdown")
                finally:
                    connected.close()
            return ""
        except channel.Lost:
            # It was killed meanwhile: the next one continues from the records.
            problem = "the supervisor was killed again and again"
        except TimeoutError:
            problem = f"the supervisor did not answer within {_SHUTDOWN_SECONDS:g} s"
            await _kill_supervisor(runtime)
        except (RuntimeFailure, OSError) as error:
            problem = str(error)
            await _kill_supervisor(runtime)
    return f"containers may still run: {problem}"


async def _kill_supervisor(runtime: Path) -> None:
    """Kill a supervisor that does not answer because it is stopped (SIGSTOP) or hangs. Its
    containers end with it, or the next one finds them."""
    with contextlib.suppress(OSError):
        pid = spawn.supervisor(runtime)
        if not pid:
            return
        handle = os.pidfd_open(pid)
        try:
            # Checked again with the pidfd open: this is the process that listens there.
            if spawn.supervisor(runtime) == pid:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                await SystemClock().sleep(_PAUSE)
        finally:
            os.close(handle)
