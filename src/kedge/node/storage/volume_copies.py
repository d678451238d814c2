"""VolumeCopies: makes the data of local volumes that are copies of others."""

from kedge.api.core_v1.references import ObjectReference
from kedge.api.storage_v1.local_volumes import COPY_OF, LOCAL_DATA, LOCAL_DRIVER
from kedge.node.pod.dependencies import EventSink
from kedge.node.storage.driver_catalog import DriverCatalog
from kedge.node.storage.local_driver import LocalDriver
from kedge.node.storage.pod_storage import PodStorage
from kedge.node.storage.volume_driver import DriverError, DriverVolume
from kedge.node.storage.volume_objects import MountableVolume


def is_due(volume: MountableVolume) -> bool:
    """Whether a volume is a copy that was not made yet."""
    source = volume.spec.csi
    if source is None or source.driver != LOCAL_DRIVER or volume.metadata.deletion_timestamp:
        return False
    return COPY_OF in source.volume_attributes and LOCAL_DATA not in volume.metadata.annotations


class VolumeCopies:
    """Copies a volume while no pod uses it, so that all its files are of one moment. Pods that
    start meanwhile wait."""

    def __init__(self, storage: PodStorage, drivers: DriverCatalog, events: EventSink) -> None:
        self._storage = storage
        self._drivers = drivers
        self._events = events

    async def make(self, volume: MountableVolume, wanted: DriverVolume) -> None:
        """Copy the data of a volume. Raises DriverError, after an event on the claim."""
        try:
            await self._copy(wanted, wanted.attributes[COPY_OF])
        except DriverError as error:
            self._tell(volume, "Warning", "VolumeNotCopied", str(error))
            raise
        self._tell(volume, "Normal", "VolumeCopied", f"{volume.metadata.name} has its data")

    async def _copy(self, wanted: DriverVolume, source: str) -> None:
        driver = self._drivers.find(LOCAL_DRIVER)
        assert isinstance(driver, LocalDriver)
        locks = (self._storage.lock(LOCAL_DRIVER, each) for each in (source, wanted.handle))
        first, second = locks
        async with first, second:
            if users := self._storage.records.users(LOCAL_DRIVER, source):
                names = ", ".join(sorted({f"{each.namespace}/{each.pod}" for each in users}))
                raise DriverError(
                    f"a volume is copied while no pod uses it: delete {names}; the copy is made"
                    " as soon as they have ended"
                )
            await driver.copy(wanted, source)

    def _tell(self, volume: MountableVolume, kind: str, reason: str, text: str) -> None:
        owner = volume.spec.claim_ref
        if owner is None:
            return
        claim = ObjectReference(
            apiVersion="v1",
            kind="PersistentVolumeClaim",
            namespace=owner.namespace,
            name=owner.name,
            uid=owner.uid,
        )
        self._events.record(claim, kind, reason, text)
