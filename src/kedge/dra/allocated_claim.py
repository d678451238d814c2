"""AllocatedClaim: the part of a ResourceClaim that concerns one driver."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from kedge.api.resource_v1.resource_claim import ResourceClaim
from kedge.api.resource_v1.resource_claim_status import (
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
)
from kedge.dra.messages import ClaimContainer


class AllocatedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device of the driver that the scheduler has allocated to a claim."""

    request: str
    """Name of the request; of an alternative, `request/alternative`."""
    pool: str
    device: str
    parameters: Sequence[Any] = ()
    """Opaque parameters for the driver: those of the device class first, then those of the
    claim."""
    share_id: str | None = None
    consumed_capacity: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Amounts of a shared device, by name."""
    is_for_administration: bool = False
    """Whether the device was allocated for maintenance, while other claims may use it."""


class AllocatedClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim to prepare."""

    namespace: str
    name: str
    uid: str
    devices: Sequence[AllocatedDevice] = ()
    containers: Sequence[ClaimContainer] = ()
    """The containers of the pod that needs the claim; only kedge's agent sends them."""


class ClaimNotReady(Exception):
    """The claim cannot be prepared as it is."""


def allocated_claim(
    claim: ResourceClaim, driver: str, uid: str, containers: Sequence[ClaimContainer] = ()
) -> AllocatedClaim:
    """Return the devices of a driver in a claim. Raises ClaimNotReady."""
    meta, allocation = claim.metadata, claim.status.allocation
    label = f"{meta.namespace}/{meta.name}"
    if meta.uid != uid:
        raise ClaimNotReady(f"claim {label} got replaced")
    if allocation is None:
        raise ClaimNotReady(f"claim {label} not allocated")
    devices = [
        AllocatedDevice(
            request=each.request,
            pool=each.pool,
            device=each.device,
            parameters=list(_parameters(allocation.devices, each)),
            share_id=each.shareID,
            consumed_capacity={name: str(value) for name, value in each.consumedCapacity.items()},
            is_for_administration=bool(each.adminAccess),
        )
        for each in allocation.devices.results
        if each.driver == driver
    ]
    return AllocatedClaim(
        namespace=meta.namespace, name=meta.name, uid=uid, devices=devices, containers=containers
    )


def _parameters(
    allocation: DeviceAllocationResult, result: DeviceRequestAllocationResult
) -> Iterator[Any]:
    names = {result.request, result.request.partition("/")[0]}
    for config in allocation.config:
        opaque = config.opaque
        if opaque is None or opaque.driver != result.driver:
            continue
        if not config.requests or not names.isdisjoint(config.requests):
            yield opaque.parameters
