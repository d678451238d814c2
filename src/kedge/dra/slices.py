"""SlicePublisher: keeps the ResourceSlices of one driver on one node as the driver wants them."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from kedge.api.core_v1 import node
from kedge.api.model import ObjectMeta, OwnerReference
from kedge.api.resource_v1 import resource_slice
from kedge.api.resource_v1.resource_slice import ResourceSlice
from kedge.api.resource_v1.resource_slice_types import (
    Device,
    ResourcePool,
    ResourceSliceSpec,
)
from kedge.client.client import Client
from kedge.client.informer import Cache, Informer
from kedge.client.view import objects
from kedge.client.workqueue import Backoff
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError

log = logging.getLogger(__name__)

MOST_DEVICES: Final = 128
"""Devices of one slice."""
MOST_TAINTED_DEVICES: Final = 64
"""Devices of one slice if any of its devices has taints or consumes counters."""
GATHER_SECONDS: Final = 0.05
"""Seconds in which several changes become one."""


class SlicePublisher:
    """Publishes the devices of a node as one pool with the node's name. The owner must `run` it."""

    def __init__(
        self,
        client: Client,
        driver: str,
        node_name: str,
        devices: Callable[[], Sequence[Device]],
        clock: Clock,
    ) -> None:
        self._client = client
        self._driver = driver
        self._node = node_name
        self._devices = devices
        self._clock = clock
        self._wake = asyncio.Event()
        self._stored: dict[str, Sequence[Device]] = {}
        """By name of a slice: its devices as the server answered when they were written. The
        server may drop fields that it does not know."""
        self._wanted: list[list[Device]] = []
        """The devices of each slice, at the latest write."""
        self.published = asyncio.Event()
        """Set once the server has all devices."""

    def wake(self) -> None:
        """Publish the devices: they have changed."""
        self._wake.set()

    async def run(self) -> None:
        """Run until cancelled."""
        known: Cache[ResourceSlice] = Cache()
        known.listen(lambda key: self._wake.set())
        fields = f"spec.nodeName={self._node},spec.driver={self._driver}"
        informer = Informer(
            self._client, objects(resource_slice.RESOURCE), known, self._clock, fields=fields
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(informer.run())
            await informer.synced.wait()
            await self._keep(known)

    async def _keep(self, known: Cache[ResourceSlice]) -> None:
        backoff, failures = Backoff(first=0.2, most=30.0), 0
        while True:
            self._wake.clear()
            try:
                await self._sync(list(known))
                failures = 0
            except (StatusError, OSError) as error:
                failures += 1
                log.warning("cannot publish driver=%s error=%r", self._driver, str(error))
                await self._clock.sleep(backoff.delay(failures))
                continue
            await self._wake.wait()
            await self._clock.sleep(GATHER_SECONDS)

    async def _sync(self, existing: Sequence[ResourceSlice]) -> None:
        wanted = chunks(self._devices())
        pool = [each for each in existing if each.spec.pool.name == self._node]
        newest = max((each.spec.pool.generation for each in pool), default=0)
        current = sorted(
            (each for each in pool if each.spec.pool.generation == newest),
            key=lambda each: each.metadata.name,
        )
        obsolete = [each for each in existing if each not in current]
        if not self._is_current(current, wanted):
            await self._write(current, wanted, newest + 1)
            obsolete += current[len(wanted) :]
        for each in obsolete:
            await self._delete(each)
        self.published.set()

    def _is_current(self, current: Sequence[ResourceSlice], wanted: Sequence[list[Device]]) -> bool:
        if len(current) != len(wanted):
            return False
        for each, devices in zip(current, wanted, strict=True):
            found = each.spec.devices
            as_wanted = list(found) == devices
            as_stored = self._wanted == wanted and found == self._stored.get(each.metadata.name)
            if each.spec.pool.resourceSliceCount != len(wanted) or not (as_wanted or as_stored):
                return False
        return True

    async def _write(
        self, current: Sequence[ResourceSlice], wanted: Sequence[list[Device]], generation: int
    ) -> None:
        self._wanted, self._stored = [list(each) for each in wanted], {}
        owner = await self._owner() if len(wanted) > len(current) else None
        for i, devices in enumerate(wanted):
            spec = ResourceSliceSpec(
                driver=self._driver,
                nodeName=self._node,
                pool=ResourcePool(
                    name=self._node, generation=generation, resourceSliceCount=len(wanted)
                ),
                devices=devices,
            )
            if i < len(current):
                changed = replace(current[i], spec=spec)
                done = await self._client.update(resource_slice.RESOURCE, changed)
            else:
                meta = ObjectMeta(
                    generateName=f"{self._node}-{self._driver}-",
                    ownerReferences=[owner] if owner is not None else (),
                )
                made = ResourceSlice(metadata=meta, spec=spec)
                done = await self._client.create(resource_slice.RESOURCE, made)
            self._stored[done.metadata.name] = done.spec.devices
        log.info(
            "published driver=%s devices=%d slices=%d generation=%d",
            self._driver,
            sum(map(len, wanted)),
            len(wanted),
            generation,
        )

    async def _owner(self) -> OwnerReference:
        """Return a reference to the node: its slices are removed with it."""
        found = await self._client.get(node.RESOURCE, self._node)
        return OwnerReference(
            apiVersion="v1",
            kind="Node",
            name=self._node,
            uid=found.metadata.uid,
            controller=True,
        )

    async def _delete(self, obsolete: ResourceSlice) -> None:
        try:
            await self._client.delete(resource_slice.RESOURCE, obsolete.metadata.name)
        except StatusError as error:
            if error.code != 404:
                raise


def chunks(devices: Sequence[Device]) -> list[list[Device]]:
    """Return the devices of each slice; one slice without devices if there are none, so that the
    scheduler knows the pool."""
    is_small = any(each.taints or each.consumesCounters for each in devices)
    size = MOST_TAINTED_DEVICES if is_small else MOST_DEVICES
    return [list(devices[at : at + size]) for at in range(0, len(devices), size)] or [[]]
