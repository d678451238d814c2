"""VolumeExpander: lets bound volumes of kedge's own driver grow, and reports who grows others."""

from typing import Any, Final

from kedge.api.core_v1.persistent_volume_claim import RESOURCE as CLAIMS
from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim
from kedge.api.storage_v1 import persistent_volume
from kedge.api.storage_v1.binding import is_fully_bound, size_of
from kedge.api.storage_v1.local_volumes import LOCAL_DRIVER
from kedge.api.storage_v1.persistent_volume import VOLUMES, PersistentVolume
from kedge.client.client import Client
from kedge.client.events import NORMAL, Recorder
from kedge.client.informer import Key
from kedge.controllers.loop import ControllerLoop, together
from kedge.controllers.shared_informers import SharedInformers, key_of
from kedge.controllers.volumes.volume_writes import VolumeWrites
from kedge.machinery.clock import Clock
from kedge.machinery.durations import format_time
from kedge.machinery.quantity import Quantity

COMPONENT: Final = "volume_expand"
PENDING_ON_NODE: Final = "FileSystemResizePending"
WAITING_MESSAGE: Final = (
    "Waiting for user to (re-)start a pod to finish file system resize of volume on node."
)
NODE_INFEASIBLE: Final = "NodeResizeInfeasible"
LOWERING: Final = "ControllerResizeInProgress"
_ZERO: Final = Quantity.from_value(0)


class VolumeExpander:
    """Looks at a bound claim when its request changes."""

    def __init__(self, client: Client, shared: SharedInformers, clock: Clock) -> None:
        self._clock = clock
        self._claims = shared.of(CLAIMS)
        self._volumes = shared.viewed(VOLUMES, persistent_volume.decode)
        self._writes = VolumeWrites(client, clock, self._volumes, self._claims)
        self._recorder = Recorder(client, clock, COMPONENT)
        self._loop: ControllerLoop[Key] = ControllerLoop("volume-expand", self._reconcile, clock)
        self._claims.follow(self._changed)

    async def run(self) -> None:
        await together(self._loop.run(), self._recorder.run())

    def _changed(
        self, before: PersistentVolumeClaim | None, now: PersistentVolumeClaim | None
    ) -> None:
        if now is not None and wants_more(now):
            self._loop.add(key_of(now))

    async def _reconcile(self, key: Key) -> None:
        claim = self._claims.get(key.name, key.namespace)
        volume = self._volumes.get(claim.spec.volumeName) if claim is not None else None
        if claim is None or volume is None or not wants_more(claim):
            return
        if volume.driver != LOCAL_DRIVER:
            message = "waiting for an external controller to expand this PVC"
            self._recorder.record(claim, NORMAL, "ExternalExpanding", message)
            return
        await self._expand(claim, volume)

    async def _expand(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        """Change the capacity of the volume, then leave the rest to its node."""
        size = size_of(claim)
        if must_wait(claim, volume.size):
            return
        if volume.size > size:
            # The node does not begin again while the claim says so.
            await self._write(claim, lowering_status(claim))
        if volume.size != size:
            capacity = {"spec": {"capacity": {"storage": str(size)}}}
            await self._writes.known(await self._writes.patch_volume(volume, capacity))
        claim = self._claims.get(claim.metadata.name, claim.metadata.namespace) or claim
        await self._write(claim, expansion_status(claim, format_time(self._clock.now())))

    async def _write(self, claim: PersistentVolumeClaim, status: dict[str, Any] | None) -> None:
        if status is not None:
            written = await self._writes.patch_claim(claim, {"status": status}, "status")
            await self._writes.known(claim=written)


def wants_more(claim: PersistentVolumeClaim) -> bool:
    """Whether a bound claim requests more than its volume has."""
    return is_fully_bound(claim) and size_of(claim) > claim.status.capacity.get("storage", _ZERO)


def must_wait(claim: PersistentVolumeClaim, capacity: Quantity) -> bool:
    """Whether the node is growing the volume to more than the claim requests now.

    Only when the node has given up does the volume get the lowered size. Kubernetes never lowers
    the capacity of a volume, because a storage system may have grown it before the node tried.
    Nothing but the node grows a local volume.
    """
    state = claim.status.allocatedResourceStatuses.get("storage", "")
    return capacity > size_of(claim) and state not in (NODE_INFEASIBLE, LOWERING)


def lowering_status(claim: PersistentVolumeClaim) -> dict[str, Any] | None:
    """Return the status of a claim whose growth is being taken back; None if it has it."""
    if claim.status.allocatedResourceStatuses.get("storage") == LOWERING:
        return None
    return {
        "allocatedResources": {"storage": str(size_of(claim))},
        "allocatedResourceStatuses": {"storage": LOWERING},
    }


def expansion_status(claim: PersistentVolumeClaim, now: str) -> dict[str, Any] | None:
    """Return the status of a claim whose node must grow the file system; None if it has it."""
    size, status = size_of(claim), claim.status
    is_allocated = status.allocatedResources.get("storage") == size
    if is_allocated and status.allocatedResourceStatuses.get("storage", LOWERING) != LOWERING:
        return None
    condition = {
        "type": PENDING_ON_NODE,
        "status": "True",
        "message": WAITING_MESSAGE,
        "lastTransitionTime": now,
    }
    others = [
        {"type": each.type, "status": each.status, "lastTransitionTime": each.lastTransitionTime}
        | ({"message": each.message} if each.message else {})
        | ({"reason": each.reason} if each.reason else {})
        for each in status.conditions
        if each.type not in (PENDING_ON_NODE, "Resizing", "NodeResizeError")
    ]
    return {
        "allocatedResources": {"storage": str(size)},
        "allocatedResourceStatuses": {"storage": "NodeResizePending"},
        "conditions": [*others, condition],
    }
