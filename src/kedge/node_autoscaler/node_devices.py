"""The devices of a node that does not exist yet.

A new node has devices only if a driver comes to it, which a DaemonSet sees to. So the slices of the
node after which it is modelled count if a DaemonSet has a pod there that can be the driver, and if
all usable nodes have devices of the driver: one that has none waits for them, or never gets them,
and another node would not help.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.resource_v1.device_class import DeviceClass
from kedge.api.resource_v1.resource_claim import ResourceClaim
from kedge.api.resource_v1.resource_slice import ResourceSlice

_KUBELET: Final = "/var/lib/kubelet"


class ClusterDevices(NamedTuple):
    """The objects that say which devices there are and who has them."""

    claims: Sequence[ResourceClaim] = ()
    classes: Sequence[DeviceClass] = ()
    slices: Sequence[ResourceSlice] = ()

    def drivers_on(self, node: str) -> set[str]:
        """Return the drivers that have published devices of a node."""
        return {each.spec.driver for each in self.slices if each.spec.nodeName == node}

    def modelled(self, model: str, name: str, drivers: Iterable[str]) -> Iterator[ResourceSlice]:
        """Yield the slices of some drivers on a node as those of another node."""
        wanted = set(drivers)
        for each in self.slices:
            if each.spec.nodeName == model and each.spec.driver in wanted:
                pool = replace(each.spec.pool, name=f"{name}/{each.spec.pool.name}")
                yield replace(
                    each,
                    metadata=replace(each.metadata, name=f"{name}/{each.metadata.name}", uid=""),
                    spec=replace(each.spec, nodeName=name, pool=pool),
                )


def expected_drivers(
    devices: ClusterDevices, nodes: Iterable[str], pods: Sequence[Pod], model: str
) -> dict[str, str]:
    """Return the drivers on a node, and why each is not expected on a new one; empty if it is."""
    usable = sorted(nodes)
    daemons = [each for each in pods if each.spec.nodeName == model and _is_of_daemon_set(each)]
    found = {}
    for driver in sorted(devices.drivers_on(model)):
        lacking = [each for each in usable if driver not in devices.drivers_on(each)]
        if not any(_may_be(each, driver) for each in daemons):
            found[driver] = f"no DaemonSet runs driver {driver}"
        else:
            found[driver] = f"node {lacking[0]} has no devices of {driver}" if lacking else ""
    return found


def _is_of_daemon_set(pod: Pod) -> bool:
    owners = (each for each in pod.metadata.ownerReferences if each.controller)
    return any(each.kind == "DaemonSet" for each in owners)


def _may_be(pod: Pod, driver: str) -> bool:
    """Whether a pod mounts the directories in which a driver has its sockets."""
    paths = [each.hostPath.path.rstrip("/") for each in pod.spec.volumes if each.hostPath]
    places = (_KUBELET, f"{_KUBELET}/plugins", f"{_KUBELET}/plugins/{driver}")
    registry = (_KUBELET, f"{_KUBELET}/plugins_registry")
    return any(each in places for each in paths) and any(each in registry for each in paths)
