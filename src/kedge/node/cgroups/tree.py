"""The cgroups of pods: one for each QoS class, and one for each pod in it."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.resources import qos_class
from kedge.node.cgroups import amounts
from kedge.node.runtime.runtime import ContainerLimits
from kedge.supervisor.kernel.cgroups import Cgroup, Cgroups, write

_CLASSES: Final = {"Guaranteed": "", "Burstable": "/burstable", "BestEffort": "/besteffort"}
_POD: Final = "/pod"


class PodCgroupTree:
    """Creates and removes the cgroups of one node's pods. Fulfils dependencies.PodCgroups."""

    def __init__(self, cgroups: Cgroups, root: str, memory_capacity: int, max_pids: int) -> None:
        self._cgroups = cgroups
        self._root = root
        self._memory_capacity = memory_capacity
        self._max_pids = max_pids
        self._burstable: dict[str, Pod] = {}
        """By uid: the pods whose requests count in the shares of their class."""

    def ensure(self, pod: Pod) -> str:
        quality = qos_class(pod)
        group = self._group(_CLASSES[quality], pod.metadata.uid)
        group.make()
        if quality == "BestEffort":
            self._of_class("BestEffort").limit({"cpu_shares": amounts.LEAST_SHARES})
        self._limit(group, pod)
        return group.path

    def resources(self, pod: Pod, container: Container) -> ContainerLimits:
        return amounts.of_container(pod, container, self._memory_capacity)

    def update(self, pod: Pod) -> None:
        self._limit(self._group(_CLASSES[qos_class(pod)], pod.metadata.uid), pod)

    def remove(self, uid: str) -> None:
        for quality in _CLASSES.values():
            group = self._group(quality, uid)
            if group.exists():
                group.kill()
                group.remove()
        if self._burstable.pop(uid, None):
            self._weigh_burstable()

    def pod_uids(self) -> Iterator[str]:
        # A group is in every hierarchy.
        place = self._cgroups.hierarchies[0].place
        for quality in _CLASSES.values():
            with contextlib.suppress(FileNotFoundError):
                for name in os.listdir(f"{place}{self._root}{quality}"):
                    if name.startswith(_POD[1:]):
                        yield name.removeprefix(_POD[1:])

    def remove_all(self) -> bool:
        """Kill and remove all cgroups of the node; return whether that succeeded."""
        root = self._cgroups.group(self._root)
        for uid in list(self.pod_uids()):
            self.remove(uid)
        gone = root.remove()
        # Other nodes and clusters of this machine may use the parent.
        for hierarchy in self._cgroups.hierarchies:
            with contextlib.suppress(OSError):
                os.rmdir(f"{hierarchy.place}{os.path.dirname(self._root)}")
        return gone

    def _group(self, quality: str, uid: str) -> Cgroup:
        return self._cgroups.group(f"{self._root}{quality}{_POD}{uid}")

    def _of_class(self, quality: str) -> Cgroup:
        return self._cgroups.group(f"{self._root}{_CLASSES[quality]}")

    def _limit(self, group: Cgroup, pod: Pod) -> None:
        group.limit(_limits_document(amounts.of_pod(pod, self._max_pids)))
        self._keep_others_alive(group)
        if qos_class(pod) == "Burstable":
            self._burstable[pod.metadata.uid] = pod
            self._weigh_burstable()

    def _keep_others_alive(self, group: Cgroup) -> None:
        """Let the kernel kill one container of a pod without memory, not all of them."""
        memory = self._cgroups.place("memory")
        if memory is not None and memory.unified:
            with contextlib.suppress(OSError):
                write(f"{memory.place}{group.path}/memory.oom.group", "0")

    def _weigh_burstable(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            shares = amounts.pod_shares(self._burstable.values())
            self._of_class("Burstable").limit({"cpu_shares": shares})


class NoCgroups:
    """The cgroups of a node that may not create any. Fulfils dependencies.PodCgroups."""

    def __init__(self, memory_capacity: int) -> None:
        self._memory_capacity = memory_capacity

    def ensure(self, pod: Pod) -> str:
        return ""

    def resources(self, pod: Pod, container: Container) -> ContainerLimits:
        return amounts.of_container(pod, container, self._memory_capacity)

    def update(self, pod: Pod) -> None:
        return

    def remove(self, uid: str) -> None:
        return

    def pod_uids(self) -> Iterator[str]:
        return iter(())


def _limits_document(resources: ContainerLimits) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(resources)
    # The absence of a limit is written as well: the pod may have had one before.
    return found
