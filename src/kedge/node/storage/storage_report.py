"""Reports the storage of a node: its drivers as a CSINode, its free space for local volumes."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from kedge.api.model import Document, ObjectMeta, OwnerReference
from kedge.api.resource import Resource
from kedge.api.storage_v1.local_volumes import (
    CAPACITY_NAMESPACE,
    LOCAL_DRIVER,
    LOCAL_PROVISIONER,
    capacity_name,
)
from kedge.client.client import Client
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.machinery.quantity import Format, Quantity
from kedge.node.pod.dependencies import ThisNode
from kedge.node.pod.timeouts import wait_until_set
from kedge.node.storage.driver_catalog import DriverCatalog
from kedge.node.storage.volume_driver import DriverError
from kedge.node.storage.volume_objects import CAPACITIES, CLASS_VIEW, NODES, ClassObject

log = logging.getLogger(__name__)

REPORT_SECONDS: Final = 30.0
_ROUNDED: Final = 16 << 20
"""Free space is reported in multiples of this, so that an idle node writes nothing."""
_HOSTNAME: Final = "kubernetes.io/hostname"


class ReportedDriver(msgspec.Struct, frozen=True):
    """A driver as CSINode lists it."""

    name: str
    node_id: str
    topology_keys: tuple[str, ...] = ()
    most_volumes: int = 0
    """0 for no limit."""

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = {"name": self.name, "nodeID": self.node_id}
        found["topologyKeys"] = list(self.topology_keys) or None
        if self.most_volumes > 0:
            found["allocatable"] = {"count": self.most_volumes}
        return found


class StorageReport:
    """Writes the objects, and again when they change. The owner must `run` it."""

    def __init__(
        self,
        client: Client,
        this: ThisNode,
        drivers: DriverCatalog,
        registered: Callable[[], Sequence[ReportedDriver]],
        clock: Clock,
    ) -> None:
        self._client = client
        self._this = this
        self._drivers = drivers
        self._registered = registered
        self._clock = clock
        self._written: dict[str, dict[str, Any]] = {}
        self._due = asyncio.Event()

    def soon(self) -> None:
        """Report now."""
        self._due.set()

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            self._due.clear()
            try:
                await self._report()
            except (StatusError, OSError, DriverError) as error:
                log.warning("storage not reported error=%r", str(error))
            await wait_until_set(self._due, self._clock, REPORT_SECONDS)

    async def write_drivers(self) -> None:
        """Write the node's CSINode."""
        node = self._this.node.metadata
        own = ReportedDriver(LOCAL_DRIVER, node.name, (_HOSTNAME,))
        drivers = [each.document() for each in (own, *self._registered())]
        await self._put(NODES, node.name, "", {"spec": {"drivers": drivers}})

    async def _report(self) -> None:
        await self.write_drivers()
        classes = await self._client.list_as(CLASS_VIEW)
        for each in classes.items:
            if each.provisioner == LOCAL_PROVISIONER:
                await self._report_capacity(each)

    async def _report_capacity(self, storage_class: ClassObject) -> None:
        free = await self._drivers.find(LOCAL_DRIVER).capacity(storage_class.parameters)
        node, name = self._this.node.metadata, storage_class.metadata.name
        amount = Quantity.from_value(free // _ROUNDED * _ROUNDED, Format.BINARY_SI)
        labels = {_HOSTNAME: node.labels.get(_HOSTNAME, node.name)}
        content = {
            "storageClassName": name,
            "capacity": str(amount),
            "nodeTopology": {"matchLabels": labels},
        }
        at = capacity_name(node.name, name)
        await self._put(CAPACITIES, at, CAPACITY_NAMESPACE, content)

    async def _put(
        self, resource: Resource[Document], name: str, namespace: str, content: dict[str, Any]
    ) -> None:
        # With its owner: if the Node is deleted and registers again, these objects go with the old
        # one, and are written for the new one.
        node = self._this.node.metadata
        owner = OwnerReference(apiVersion="v1", kind="Node", name=node.name, uid=node.uid)
        patch = {"metadata": {"ownerReferences": [msgspec.to_builtins(owner)]}, **content}
        key = f"{resource.plural}/{name}"
        if self._written.get(key) == patch:
            return
        try:
            await self._client.patch(resource, name, patch, namespace)
        except StatusError as error:
            if error.code != 404:
                raise
            meta = ObjectMeta(name=name, namespace=namespace, ownerReferences=[owner])
            await self._client.create(resource, Document(metadata=meta, content=content))
        self._written[key] = patch
