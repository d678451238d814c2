"""ClaimWrites: the scheduler's writes to ResourceClaims: allocate, reserve, and take back."""

import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.resource_v1.pod_claims import consumer, is_reserved
from kedge.api.resource_v1.resource_claim import FINALIZER, RESOURCE, ResourceClaim
from kedge.api.resource_v1.resource_claim_status import AllocationResult, ResourceClaimStatus
from kedge.client.client import STRATEGIC_PATCH, Client
from kedge.machinery.clock import Clock
from kedge.machinery.durations import format_time
from kedge.machinery.errors import StatusError
from kedge.scheduler.devices.device_state import DeviceState

log = logging.getLogger(__name__)

ATTEMPTS: Final = 5
"""How often a write is tried whose claim has changed in the meantime."""


class ClaimReservation(NamedTuple):
    """A claim that a pod is about to use, and its allocation if it has none yet."""

    claim: ResourceClaim
    allocation: AllocationResult | None


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
                written.append(await self._reserved(pod, each))
        except (StatusError, OSError, ClaimWriteFailed) as error:
            for each in reservations:
                self._devices.release(each.claim)
            await self.unreserve(pod, written)
            raise ClaimWriteFailed(str(error)) from error
        return written

    async def _reserved(self, pod: Pod, reservation: ClaimReservation) -> ResourceClaim:
        claim, allocation = reservation
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
        """Remove a pod from the consumers of claims; they stay allocated."""
        gone = {"$patch": "delete", "uid": pod.metadata.uid}
        for claim in claims:
            meta = claim.metadata
            patch = {"metadata": {"uid": meta.uid}, "status": {"reservedFor": [gone]}}
            try:
                await self._client.patch(
                    RESOURCE,
                    meta.name,
                    patch,
                    meta.namespace,
                    form=STRATEGIC_PATCH,
                    subresource="status",
                )
            except (StatusError, OSError) as error:
                log.warning("cannot unreserve claim=%s error=%r", _shown(claim), str(error))

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
