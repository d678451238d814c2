"""The storage of a node: builds drivers, mounts and reports, and runs them."""

import asyncio
from collections.abc import Mapping
from typing import Final

from kedge.api.core_v1 import node as nodes
from kedge.api.core_v1.references import ObjectReference
from kedge.api.storage_v1.local_volumes import LOCAL_DATA, LOCAL_DRIVER
from kedge.client.client import Client
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.node.config import NodeConfig
from kedge.node.host.kubelet_directory import KubeletDirectory
from kedge.node.pod.dependencies import EventSink, ThisNode, VolumeFailure
from kedge.node.pod.referenced_objects import ReferencedObjects
from kedge.node.storage.csi_registry import CsiRegistry
from kedge.node.storage.driver_catalog import NodeDrivers
from kedge.node.storage.local_driver import LocalDriver
from kedge.node.storage.local_store import LocalVolumeStore
from kedge.node.storage.mount_context import DriverContexts
from kedge.node.storage.mount_records import MountRecords
from kedge.node.storage.nfs_mount import NFS_DRIVER
from kedge.node.storage.pod_storage import PodStorage
from kedge.node.storage.storage_report import StorageReport
from kedge.node.storage.volume_driver import DriverError, DriverVolume, VolumeDriver
from kedge.node.storage.volume_follower import VolumeFollower
from kedge.node.storage.volume_limit_refresh import VolumeLimitRefresh
from kedge.node.storage.volume_lookup import VolumeLookup
from kedge.node.storage.volume_objects import VOLUMES


def check_topology(labels: Mapping[str, str], known: Mapping[str, str]) -> None:
    """Refuse a driver whose topology contradicts the labels of the node. Raises ValueError."""
    for key, value in labels.items():
        if known.get(key, value) != value:
            raise ValueError(
                f'detected topology value collision: driver reported "{key}":"{value}" but'
                f' existing label is "{key}":"{known[key]}"'
            )


MANAGED_ATTACHMENT: Final = "volumes.kubernetes.io/controller-managed-attach-detach"
"""The annotation of nodes whose volumes a controller attaches."""


class NodeStorage:
    """The owner must `run` it, once the node is registered."""

    def __init__(
        self,
        config: NodeConfig,
        kubelet: KubeletDirectory,
        client: Client,
        sources: ReferencedObjects,
        this: ThisNode,
        events: EventSink,
        clock: Clock,
        *,
        registered: CsiRegistry,
        may_mount: bool,
    ) -> None:
        self._config = config
        self._client = client
        self._events = events
        self._may_mount = may_mount
        self._loop: asyncio.AbstractEventLoop | None = None
        self._told: set[str] = set()
        own = {LOCAL_DRIVER: self._local_driver, NFS_DRIVER: self._nfs_driver}
        self.drivers = NodeDrivers(own, registered)
        contexts = DriverContexts(client, sources, config.name)
        self.pods = PodStorage(
            MountRecords(config.pods),
            kubelet.root,
            config.state,
            VolumeLookup(client),
            self.drivers,
            contexts,
            this,
            events,
        )
        self.pods.in_use_changed = self._report_in_use
        self._follower = VolumeFollower(
            client, self.pods, self.drivers, contexts, this, events, clock, node=config.name
        )
        self.pods.changed = self._follower.look_at
        self.report = StorageReport(client, this, self.drivers, registered.nodes, clock)
        self._limits = VolumeLimitRefresh(
            registered, contexts.limit_period, self.report.write_drivers, clock
        )
        registered.announce = self._announce

    async def _announce(self, labels: Mapping[str, str]) -> None:
        """Write the labels of a driver's topology and its entry in CSINode, before the driver
        is notified."""
        if labels:
            known = (await self._client.get(nodes.RESOURCE, self._config.name)).metadata.labels
            check_topology(labels, known)
            patch = {"metadata": {"labels": dict(labels)}}
            await self._client.patch(nodes.RESOURCE, self._config.name, patch)
        await self.report.write_drivers()

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follower.run())
            tasks.create_task(self.report.run())
            tasks.create_task(self._limits.run())

    def _local_driver(self) -> LocalDriver:
        self._loop = asyncio.get_running_loop()
        store = LocalVolumeStore(self._config.volumes)
        return LocalDriver(
            store,
            may_mount=self._may_mount,
            shortfall=self._size_not_enforced,
            mark=self._mark_made,
        )

    def _nfs_driver(self) -> VolumeDriver:
        from kedge.node.storage.nfs_driver import NfsDriver

        return NfsDriver(may_mount=self._may_mount)

    async def _mark_made(self, volume: DriverVolume) -> None:
        patch = {"metadata": {"annotations": {LOCAL_DATA: self._config.name}}}
        try:
            await self._client.patch(VOLUMES, volume.name, patch)
        except (StatusError, OSError) as error:
            raise DriverError(f"cannot record that the volume exists: {error}") from error

    def _size_not_enforced(self, volume: DriverVolume, reason: str) -> None:
        """Called in a thread."""
        if self._loop is not None and volume.handle not in self._told:
            self._told.add(volume.handle)
            self._loop.call_soon_threadsafe(self._tell, volume, reason)

    def _tell(self, volume: DriverVolume, reason: str) -> None:
        for each in self.pods.records.users(volume.driver, volume.handle):
            text = f'the size of volume "{volume.name}" is not enforced: {reason}'
            reference = ObjectReference(
                apiVersion="v1",
                kind="Pod",
                namespace=each.namespace,
                name=each.pod,
                uid=each.uid,
            )
            self._events.record(reference, "Warning", "NotEnforced", text)

    async def _report_in_use(self) -> None:
        """Tell the attach-detach controller which volumes must stay attached."""
        patch = {"status": {"volumesInUse": self.pods.in_use()}}
        try:
            await self._client.patch(nodes.RESOURCE, self._config.name, patch, subresource="status")
        except (StatusError, OSError) as error:
            raise VolumeFailure(
                "FailedMount", f"cannot report the volumes in use: {error}"
            ) from error
