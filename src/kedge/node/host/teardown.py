"""Teardown of a node: ends its supervisor and containers, and removes its network, cgroups and
mounts."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from kedge.machinery.clock import SystemClock
from kedge.node.cgroups.tree import PodCgroupTree
from kedge.node.config import CRI_SCHEME
from kedge.node.host import node_record
from kedge.node.host.kubelet_directory import unshare
from kedge.node.host.user_namespaces import void_claims
from kedge.node.network.bridge import Bridge
from kedge.node.network.machine_names import MachineNames
from kedge.node.network.network_place import MACHINE, NetworkPlace, UserNetwork
from kedge.node.pod.dependencies import VolumeFailure
from kedge.node.runtime import channel, spawn
from kedge.node.runtime.runtime import RuntimeFailure
from kedge.node.storage.teardown import unmount_all
from kedge.node.volumes.mounts import take_down, take_down_binds
from kedge.supervisor.kernel import cgroups, processes
from kedge.supervisor.kernel.cgroups import Cgroups
from kedge.supervisor.sockets import sockets_of

_SHUTDOWN_SECONDS: Final = 10.0
"""Seconds for a supervisor to end its containers; it waits 5 s for the slowest."""
_ATTEMPTS: Final = 3
_PAUSE: Final = 0.02


def teardown(directory: Path) -> str:
    """End everything of the node in this directory, except its files; its agent has ended. Return
    the problems, or an empty text.

    Also works after the node's processes were killed or stopped (SIGSTOP).
    """
    # Not only by the record: an agent that was killed early has not written one.
    left: list[str] = []
    runtime, network = directory / "runtime", directory / "network"
    namespace = _network(runtime)
    has_bridge = (network / "network").exists()
    if has_bridge and not namespace.is_machine:
        # While the supervisor lives: other nodes of the cluster may keep the namespace.
        with contextlib.suppress(OSError):
            asyncio.run(Bridge.find(network, namespace=namespace).remove())
    known = node_record.read(directory)
    if known is not None and known.runtime.startswith(CRI_SCHEME):
        # Few nodes need the import.
        from kedge.node.runtime.cri.opening import remove_pods

        left.append(asyncio.run(remove_pods(known.runtime, directory)))
    if runtime.exists():
        left.append(asyncio.run(_end_containers(runtime)))
    if has_bridge and namespace.is_machine:
        asyncio.run(Bridge.find(network).remove())
    if known is not None and known.cgroup:
        groups = cgroups.here()
        if known.hierarchies:
            groups = Cgroups.of(map(msgspec.to_builtins, known.hierarchies))
        tree = PodCgroupTree(groups, known.cgroup, 0, 0)
        if not tree.remove_all():
            left.append(f"processes in the control group {known.cgroup} do not end")
    left.append(unmount_all(directory / "pods"))
    left.append(unshare(directory))
    # A container runtime that does not answer has left those of its containers.
    left.append(_down(take_down_binds, runtime / "subpaths"))
    left += [_down(take_down, directory / name) for name in ("staged", "pods", "memory")]
    MachineNames().clear()
    if not any(left):
        void_claims(directory / "pods")
    return "; ".join(filter(None, left))


def _down(remove: Callable[[Path], None], place: Path) -> str:
    """Take down a directory with mounts; return the problem, if any."""
    try:
        remove(place)
    except VolumeFailure as failure:
        return str(failure)
    return ""


def _network(runtime: Path) -> NetworkPlace:
    """Return the network of the node's pods. Only root has it on the machine itself."""
    return MACHINE if os.geteuid() == 0 else UserNetwork(sockets_of(str(runtime)))


async def _end_containers(runtime: Path) -> str:
    """Request that the supervisor ends all containers and itself; return the problem, if any."""
    problem = ""
    for _ in range(_ATTEMPTS):
        try:
            # A killed supervisor is restarted, because only a supervisor knows what to clean up.
            async with asyncio.timeout(_SHUTDOWN_SECONDS):
                connected = await channel.connect(runtime, SystemClock())
                try:
                    await connected.ask("shutdown")
                finally:
                    connected.close()
            return ""
        except channel.SupervisorLost:
            # The supervisor was killed meanwhile; the next one continues from the records.
            problem = "the supervisor was killed repeatedly"
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
        handle = processes.open_process(pid)
        try:
            # Checked again with the handle open: the pid may have been reused in between.
            if spawn.supervisor(runtime) == pid:
                processes.send_signal(handle, pid, signal.SIGKILL)
                await SystemClock().sleep(_PAUSE)
        finally:
            os.close(handle)
