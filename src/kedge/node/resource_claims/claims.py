"""The resource claims of a node: prepares them for pods, and unprepares them after the last pod.

A claim is in the checkpoint before a driver is called, and stays there until every driver has
unprepared it. So an agent that dies at any moment leaves no claim behind that the next agent does
not know: it calls NodeUnprepareResources for pods that are gone, which drivers must accept for
claims that they have not prepared.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from msgspec.structs import replace

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.status import ResourceHealth, ResourceStatus
from kedge.api.resource_v1 import resource_claim
from kedge.client.client import Client
from kedge.deviceplugin import pod_resources as r
from kedge.deviceplugin.messages import CDIDevice, Owner
from kedge.dra.messages import ClaimContainer, ClaimReference, PreparedDevice
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.node.pod.dependencies import (
    ClaimFailure,
    ConfigFailure,
    DeviceAccessCheck,
    EnvironmentResolver,
)
from kedge.node.resource_claims.claim_checkpoint import ClaimCheckpoint
from kedge.node.resource_claims.claim_ledger import (
    ClaimError,
    ClaimKey,
    PreparedClaim,
    cdi_names,
)
from kedge.node.resource_claims.device_health import DeviceHealthBook, DeviceName
from kedge.node.resource_claims.driver_client import DriverClient
from kedge.node.resource_claims.driver_registry import DriverRegistry
from kedge.node.resource_claims.pod_claims import (
    ClaimAllocation,
    PodClaimName,
    base_request,
    checked,
    claims_of,
    requests_of,
)
from kedge.node.resource_claims.slice_removal import SliceRemoval

log = logging.getLogger(__name__)

EXPIRY_SECONDS: Final = 5.0
"""Seconds between two searches for health reports that are too old."""


class _Needed(NamedTuple):
    """A claim that a pod needs, and the drivers that prepare it."""

    key: ClaimKey
    allocation: ClaimAllocation
    drivers: Mapping[str, DriverClient]


class NodeClaims:
    """The resource claims of one node. Fulfils dependencies.ClaimPreparer. The owner must `run`
    it."""

    def __init__(
        self,
        directory: Path,
        client: Client,
        clock: Clock,
        *,
        slices: SliceRemoval,
        environment: EnvironmentResolver,
        access: DeviceAccessCheck,
        pod_changed: Callable[[str], None],
    ) -> None:
        """`directory` is for the checkpoint; `pod_changed` is called with the uids of pods whose
        devices have another health."""
        self._client = client
        self._clock = clock
        self._environment = environment
        self._access = access
        self._pod_changed = pod_changed
        self._checkpoint = ClaimCheckpoint(directory)
        self._ledger = self._checkpoint.read()
        self._health = DeviceHealthBook(clock.monotonic)
        self.drivers = DriverRegistry(
            self._health, clock, slices, health_changed=self._announce_health
        )
        self._locks: WeakValueDictionary[ClaimKey, asyncio.Lock] = WeakValueDictionary()

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.drivers.run())
            while True:
                await self._clock.sleep(EXPIRY_SECONDS)
                for driver, devices in self._health.expire().items():
                    self._announce_health(driver, devices)

    # Prepare.

    async def prepare(self, pod: Pod) -> None:
        try:
            names = claims_of(pod)
            if names:
                keys = [ClaimKey(pod.metadata.namespace, each.claim) for each in names]
                async with self._locked(keys):
                    await self._prepare(pod, [await self._needed(pod, each) for each in names])
        except ClaimError as error:
            raise ClaimFailure(f"prepare dynamic resources: {error}") from error

    async def _needed(self, pod: Pod, name: PodClaimName) -> _Needed:
        """Read and check a claim. This changes nothing, so that a pod which fails here can be
        deleted although its driver was never on the node."""
        namespace = pod.metadata.namespace
        try:
            claim = await self._client.get(resource_claim.RESOURCE, name.claim, namespace)
        except (StatusError, OSError) as error:
            raise ClaimError(f"fetch ResourceClaim {name.claim}: {error}") from error
        allocation = checked(pod, name, claim)
        drivers = {each: self.drivers.driver(each) for each in allocation.drivers}
        return _Needed(ClaimKey(namespace, name.claim), allocation, drivers)

    async def _prepare(self, pod: Pod, needed: Sequence[_Needed]) -> None:
        uid = pod.metadata.uid
        batches: dict[DriverClient, list[PreparedClaim]] = {}
        pending: list[PreparedClaim] = []
        for each in needed:
            claim = self._ledger.add(each.key, each.allocation.uid, each.drivers, uid)
            if not claim.is_prepared and claim not in pending:
                pending.append(claim)
                for driver in claim.drivers:
                    client = each.drivers.get(driver) or self.drivers.driver(driver)
                    batches.setdefault(client, []).append(claim)
        # Before the calls: the next agent must know these claims if this one dies meanwhile.
        self._record()
        for client, claims in batches.items():
            await self._call_prepare(pod, client, claims)
        for claim in pending:
            claim.is_prepared = True
        self._record()

    async def _call_prepare(
        self, pod: Pod, client: DriverClient, claims: Sequence[PreparedClaim]
    ) -> None:
        references = [each.reference for each in claims]
        if client.wants_environment:
            references = await self._with_containers(pod, references)
        prepared = await client.prepare(references)
        for claim in claims:
            claim.drivers[client.driver] = tuple(prepared[claim.uid])

    async def _with_containers(
        self, pod: Pod, references: Sequence[ClaimReference]
    ) -> list[ClaimReference]:
        """Add the containers that use each claim, with their environment."""
        using: dict[str, list[ClaimContainer]] = {}
        for container in (*pod.spec.initContainers, *pod.spec.containers):
            requests = requests_of(pod, container)
            if not requests.keys().isdisjoint(each.name for each in references):
                described = await self._described(pod, container)
                for claim, names in requests.items():
                    asked = [] if "" in names else names
                    using.setdefault(claim, []).append(replace(described, requests=asked))
        return [replace(each, containers=using.get(each.name, ())) for each in references]

    async def _described(self, pod: Pod, container: Container) -> ClaimContainer:
        meta = pod.metadata
        owner = Owner(
            pod_name=meta.name,
            pod_namespace=meta.namespace,
            pod_uid=meta.uid,
            container_name=container.name,
        )
        try:
            # The pod has no address yet: it gets one with its sandbox.
            found = await self._environment.environment(pod, container, ())
        except ConfigFailure as error:
            return ClaimContainer(owner=owner, env_error=str(error))
        try:
            await self._access.check(pod, container, found.own)
        except ConfigFailure as error:
            raise ClaimError(str(error)) from error
        return ClaimContainer(owner=owner, env=_sendable(found.own))

    def _record(self) -> None:
        try:
            self._checkpoint.write(self._ledger)
        except OSError as error:
            raise ClaimError(f"checkpoint ResourceClaim state: {error}") from error

    # Unprepare.

    async def unprepare(self, uid: str) -> None:
        keys = [claim.key for claim in self._ledger.of_pod(uid)]
        if not keys:
            return
        try:
            async with self._locked(keys):
                await self._unprepare(uid)
        except ClaimError as error:
            raise ClaimFailure(f"unprepare dynamic resources: {error}") from error

    async def _unprepare(self, uid: str) -> None:
        claims = self._ledger.of_pod(uid)
        last = [claim for claim in claims if claim.pods == {uid}]
        failed: dict[ClaimKey, ClaimError] = {}
        for driver in sorted({driver for claim in last for driver in claim.drivers}):
            batch = [claim for claim in last if driver in claim.drivers]
            # A claim that fails in part is not prepared any more: a later pod must prepare it.
            for claim in batch:
                claim.is_prepared = False
            try:
                client = self.drivers.driver(driver)
                await client.unprepare([claim.reference for claim in batch])
            except ClaimError as error:
                failed.update({claim.key: error for claim in batch})
        for claim in claims:
            if claim.key not in failed:
                self._ledger.release(claim, uid)
        self._record()
        for failure in failed.values():
            raise failure

    @asynccontextmanager
    async def _locked(self, keys: Iterable[ClaimKey]) -> AsyncIterator[None]:
        """Keep other pods from preparing or unpreparing these claims."""
        async with AsyncExitStack() as stack:
            # In a fixed order, so that no two pods wait for each other.
            for key in sorted(set(keys)):
                lock = self._locks.setdefault(key, asyncio.Lock())
                await stack.enter_async_context(lock)
            yield

    # The prepared claims.

    def pod_uids(self) -> Iterable[str]:
        return self._ledger.pods()

    def cdi_devices(self, pod: Pod, container: Container) -> Sequence[str]:
        try:
            requests = requests_of(pod, container)
        except ClaimError as error:
            raise ConfigFailure(str(error)) from error
        claims = []
        for name, asked in requests.items():
            claim = self._ledger.claims.get(ClaimKey(pod.metadata.namespace, name))
            if claim is None or pod.metadata.uid not in claim.pods:
                raise ConfigFailure(
                    f"internal error: unable to get claim info for ResourceClaim {name} in "
                    f"namespace {pod.metadata.namespace}"
                )
            claims.append((claim, asked))
        return cdi_names(claims)

    def dynamic_resources(self, pod: Pod, container: Container) -> list[r.DynamicResource]:
        """Return the claims of a container, for the PodResources service."""
        try:
            names = requests_of(pod, container)
        except ClaimError:
            return []
        keys = [ClaimKey(pod.metadata.namespace, name) for name in names]
        claims = [self._ledger.claims[key] for key in keys if key in self._ledger.claims]
        return [
            r.DynamicResource(
                claim_name=claim.key.name,
                claim_namespace=claim.key.namespace,
                claim_resources=[_claim_resource(*each) for each in claim.devices()],
            )
            for claim in claims
        ]

    # Health.

    def health(self, pod: Pod) -> Mapping[str, Sequence[ResourceStatus]]:
        if not pod.spec.resourceClaims:
            return {}
        try:
            names = {each.entry: each.claim for each in claims_of(pod)}
        except ClaimError:
            return {}
        found: dict[str, list[ResourceStatus]] = {}
        for container in pod.spec.containers:
            for used in container.resources.claims:
                key = ClaimKey(pod.metadata.namespace, names.get(used.name, ""))
                claim = self._ledger.claims.get(key)
                devices = self._devices_health(claim, used.request) if claim is not None else ()
                if devices:
                    name = f"claim:{used.name}" + (f"/{used.request}" if used.request else "")
                    status = ResourceStatus(name=name, resources=devices)
                    found.setdefault(container.name, []).append(status)
        return found

    def _devices_health(self, claim: PreparedClaim, request: str) -> list[ResourceHealth]:
        found: dict[str, ResourceHealth] = {}
        for driver, device in claim.devices(base_request(request)):
            health = self._health.of(driver, device.pool_name, device.device_name)
            name = f"{driver}/{device.pool_name}/{device.device_name}"
            resource = device.cdi_device_ids[0] if device.cdi_device_ids else name
            found.setdefault(
                resource,
                ResourceHealth(
                    resourceID=resource, health=health.health, message=health.message or None
                ),
            )
        return list(found.values())

    def _announce_health(self, driver: str, devices: set[DeviceName]) -> None:
        for uid in self._ledger.with_device(driver, devices):
            self._pod_changed(uid)


def _claim_resource(driver: str, device: PreparedDevice) -> r.ClaimResource:
    return r.ClaimResource(
        cdi_devices=[CDIDevice(name=name) for name in device.cdi_device_ids],
        driver_name=driver,
        pool_name=device.pool_name,
        device_name=device.device_name,
        share_id=device.share_id,
    )


def _sendable(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without those that a protobuf string cannot carry."""
    return {name: value for name, value in env.items() if _is_text(name) and _is_text(value)}


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
