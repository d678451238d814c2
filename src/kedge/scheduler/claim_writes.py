"""ClaimWrites: the scheduler's writes to ResourceClaims: allocate, reserve, and take back."""

import logging
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.status import (
    ContainerExtendedResourceRequest,
    PodExtendedResourceClaimStatus,
)
from kedge.api.resource_v1.extended_resources import is_made_for_resources
from kedge.api.resource_v1.pod_claims import consumer, is_reserved
from kedge.api.resource_v1.resource_claim import FINALIZER, RESOURCE, ResourceClaim
from kedge.api.resource_v1.resource_claim_status import AllocationResult, ResourceClaimStatus
from kedge.client.client import (
    MERGE_PATCH,
    STRATEGIC_PATCH,
    Client,
    DeletionOptions,
    DeletionPreconditions,
)
from kedge.machinery.clock import Clock
from kedge.machinery.durations import format_time
from kedge.machinery.errors import StatusError
from kedge.scheduler.devices.device_state import DeviceState
from kedge.scheduler.reservations import ClaimReservation

log = logging.getLogger(__name__)

ATTEMPTS: Final = 5
"""How often a write is tried whose claim has changed in the meantime."""


class ClaimWriteFailed(Exception):
    """A claim could not be allocated or reserved."""


class ClaimWrites:
    """Writes allocations and reservations before a pod is bound."""

    def __init__(self, client: Client, devices: DeviceState, clock: Clock) -> None:
        self._client = client
        self._devices = devices
        self._clock = clock

    async def reserve(
        self, pod: Pod, reservations: Sequence[ClaimReservation]
    ) -> list[ResourceClaim]:
        """Write all claims of a pod; if one fails, take back the others and raise."""
        written: list[ResourceClaim] = []
        try:
            for each in reservations:
                if each.mappings:
                    # It is taken back too if the writes that follow its creation fail.
                    written.append(await self._created(each))
                    reserved = await self._reserved(pod, each._replace(claim=written[-1]))
                    written[-1] = reserved
                    await self._write_mappings(pod, reserved, each.mappings)
                else:
                    written.append(await self._reserved(pod, each))
        except (StatusError, OSError, ClaimWriteFailed) as error:
            for claim in (*(each.claim for each in reservations), *written):
                self._devices.release(claim)
            await self.unreserve(pod, written)
            raise ClaimWriteFailed(str(error)) from error
        return written

    async def _created(self, reservation: ClaimReservation) -> ResourceClaim:
        """Create the claim for the extended resources of a pod."""
        claim = reservation.claim
        metadata = replace(claim.metadata, name="", uid="")
        try:
            made = await self._client.create(RESOURCE, replace(claim, metadata=metadata))
        except StatusError as error:
            where = f"create claim for extended resources {_shown(claim)}"
            raise ClaimWriteFailed(f"{where}: {error}") from error
        self._devices.created(claim, made)
        return made

    async def _write_mappings(
        self,
        pod: Pod,
        claim: ResourceClaim,
        mappings: Sequence[ContainerExtendedResourceRequest],
    ) -> None:
        status = PodExtendedResourceClaimStatus(
            requestMappings=mappings, resourceClaimName=claim.metadata.name
        )
        try:
            await self._patch_pod(pod, msgspec.to_builtins(status))
        except StatusError as error:
            where = f"{pod.metadata.namespace}/{pod.metadata.name}"
            raise ClaimWriteFailed(
                f"update pod {where} ExtendedResourceClaimStatus: {error}"
            ) from error

    async def _patch_pod(self, pod: Pod, status: Any) -> None:
        meta = pod.metadata
        patch = {
            "metadata": {"uid": meta.uid},
            "status": {"extendedResourceClaimStatus": status},
        }
        await self._client.patch(
            PODS, meta.name, patch, meta.namespace, form=MERGE_PATCH, subresource="status"
        )

    async def _reserved(self, pod: Pod, reservation: ClaimReservation) -> ResourceClaim:
        claim, allocation = reservation.claim, reservation.allocation
        for attempt in range(ATTEMPTS):
            try:
                claim = await self._write(pod, claim, allocation)
            except StatusError as error:
                if error.reason != "Conflict" or attempt == ATTEMPTS - 1:
                    raise ClaimWriteFailed(f"{_task(allocation, claim)}: {error}") from error
                meta = claim.metadata
                claim = await self._client.get(RESOURCE, meta.name, meta.namespace)
                if claim.metadata.uid != meta.uid:
                    raise ClaimWriteFailed(
                        f"claim {_shown(claim)} got replaced in the meantime"
                    ) from error
            else:
                break
        if allocation is not None:
            self._devices.written(claim)
        return claim

    async def _write(
        self, pod: Pod, claim: ResourceClaim, allocation: AllocationResult | None
    ) -> ResourceClaim:
        where = f"claim {_shown(claim)}"
        if claim.metadata.deletionTimestamp:
            raise ClaimWriteFailed(f"{where} got deleted in the meantime")
        status = claim.status
        if allocation is not None:
            if status.allocation is not None:
                raise ClaimWriteFailed(f"{where} got allocated elsewhere in the meantime")
            if FINALIZER not in claim.metadata.finalizers:
                finalizers = [*claim.metadata.finalizers, FINALIZER]
                metadata = replace(claim.metadata, finalizers=finalizers)
                claim = await self._client.update(RESOURCE, replace(claim, metadata=metadata))
            now = format_time(self._clock.now())
            status = replace(status, allocation=replace(allocation, allocationTimestamp=now))
        elif status.allocation is None:
            raise ClaimWriteFailed(f"{where} got deallocated elsewhere in the meantime")
        if not is_reserved(claim, pod):
            status = replace(status, reservedFor=[*status.reservedFor, consumer(pod)])
        return await self._client.update(
            RESOURCE, replace(claim, status=status), subresource="status"
        )

    async def unreserve(self, pod: Pod, claims: Sequence[ResourceClaim]) -> None:
        """Remove a pod from the consumers of claims; they stay allocated. The claim for its
        extended resources is deleted."""
        for claim in claims:
            try:
                if is_made_for_resources(claim, pod):
                    await self._delete(claim)
                    await self._patch_pod(pod, None)
                else:
                    await self._remove_consumer(pod, claim)
            except (StatusError, OSError) as error:
                log.warning("cannot unreserve claim=%s error=%r", _shown(claim), str(error))

    async def _remove_consumer(self, pod: Pod, claim: ResourceClaim) -> None:
        gone = {"$patch": "delete", "uid": pod.metadata.uid}
        meta = claim.metadata
        patch = {"metadata": {"uid": meta.uid}, "status": {"reservedFor": [gone]}}
        await self._client.patch(
            RESOURCE, meta.name, patch, meta.namespace, form=STRATEGIC_PATCH, subresource="status"
        )

    async def _delete(self, claim: ResourceClaim) -> None:
        """Delete a claim that was made for extended resources, in any state."""
        meta = claim.metadata
        patch = {"metadata": {"uid": meta.uid, "$deleteFromPrimitiveList/finalizers": [FINALIZER]}}
        options = DeletionOptions(preconditions=DeletionPreconditions(uid=meta.uid))
        try:
            await self._client.patch(
                RESOURCE, meta.name, patch, meta.namespace, form=STRATEGIC_PATCH
            )
            await self._client.delete(RESOURCE, meta.name, meta.namespace, options=options)
        except StatusError as error:
            if error.code != 404:
                raise

    async def deallocate(self, claim: ResourceClaim) -> None:
        """Free the devices of a claim that no pod uses, so that it can be allocated elsewhere."""
        await self._client.update(
            RESOURCE, replace(claim, status=ResourceClaimStatus()), subresource="status"
        )
        self._devices.overdue.discard(claim.metadata.uid)


def _task(allocation: AllocationResult | None, claim: ResourceClaim) -> str:
    task = "add allocation and reservation" if allocation is not None else "add reservation"
    return f"{task} to claim {_shown(claim)}"


def _shown(claim: ResourceClaim) -> str:
    return f"{claim.metadata.namespace}/{claim.metadata.name}"
