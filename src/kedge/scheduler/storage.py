"""Storage: the claims, volumes, classes and drivers that pods depend on, and the promises of pods
that are being bound."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.volume.claims import claims_of
from kedge.api.storage_v1.binding import SELECTED_NODE, class_of
from kedge.api.storage_v1.csi import CsiDriver, CsiNode, CsiStorageCapacity
from kedge.api.storage_v1.persistent_volume import PersistentVolume
from kedge.api.storage_v1.storage_class import StorageClass
from kedge.client.informer import Cache, Key


class VolumePlan(NamedTuple):
    """The writes before a pod can use its claims on a node."""

    volumes: Mapping[Key, PersistentVolume] = {}
    """The volume of each claim that gets an existing one."""
    provisions: tuple[PersistentVolumeClaim, ...] = ()
    """The claims for which a volume is made for the node."""

    def __bool__(self) -> bool:
        return bool(self.volumes or self.provisions)


class Storage:
    """The cached objects, and the volumes and nodes promised to claims."""

    def __init__(self) -> None:
        self.claims: Cache[PersistentVolumeClaim] = Cache()
        self.volumes: Cache[PersistentVolume] = Cache()
        self.classes: Cache[StorageClass] = Cache()
        self.drivers: Cache[CsiDriver] = Cache()
        self.nodes: Cache[CsiNode] = Cache()
        self.capacities: Cache[CsiStorageCapacity] = Cache()
        self._promised: dict[str, Key] = {}
        """The claim that each volume is being bound to."""
        self._selected: dict[Key, str] = {}
        """The node for which each claim's volume is being made."""

    def class_for(self, claim: PersistentVolumeClaim) -> StorageClass | None:
        return self.classes.get(class_of(claim))

    def waits(self, claim: PersistentVolumeClaim) -> bool:
        """Whether an unbound claim is bound only once its pod has been placed."""
        known = self.class_for(claim)
        return known is not None and known.waits and not claim.spec.volumeName

    def claims_for(self, pod: Pod) -> Iterator[PersistentVolumeClaim]:
        """Yield the existing claims of a pod."""
        for each in claims_of(pod):
            if (claim := self.claims.get(each.name, pod.metadata.namespace)) is not None:
                yield claim

    # Promises, until the writes that keep them are known or have failed.

    def promise(self, plan: VolumePlan, node: str) -> None:
        """Keep volumes and nodes for the claims of a pod that is being bound."""
        for claim, volume in plan.volumes.items():
            self._promised[volume.metadata.name] = claim
        for each in plan.provisions:
            self._selected[_key(each)] = node

    def release(self, plan: VolumePlan) -> None:
        """End the promises of a plan."""
        for volume in plan.volumes.values():
            self._promised.pop(volume.metadata.name, None)
        for each in plan.provisions:
            self._selected.pop(_key(each), None)

    def taken_from(self, claim: PersistentVolumeClaim) -> Iterable[str]:
        """Return the names of volumes that are promised to other claims."""
        own = _key(claim)
        return [name for name, other in self._promised.items() if other != own]

    def selected_node(self, claim: PersistentVolumeClaim) -> str:
        """Return the node for which a claim's volume is made; empty if none was chosen."""
        promised = self._selected.get(_key(claim))
        return promised or claim.metadata.annotations.get(SELECTED_NODE, "")


def _key(claim: PersistentVolumeClaim) -> Key:
    return Key(claim.metadata.namespace, claim.metadata.name)
