"""Binding conditions: a pod waits until the drivers of its devices report them as true."""

from collections.abc import Iterator
from enum import Enum, auto

from kedge.api.model import Condition
from kedge.api.resource_v1.resource_claim import ResourceClaim
from kedge.api.resource_v1.resource_claim_status import (
    AllocatedDeviceStatus,
    DeviceRequestAllocationResult,
)


class BindingState(Enum):
    """Whether a pod with a claim may be bound."""

    READY = auto()
    WAITING = auto()
    FAILED = auto()


def binding_state(claim: ResourceClaim) -> BindingState:
    if binding_failure(claim) is not None:
        return BindingState.FAILED
    for result, status in _devices(claim):
        true = {each.type for each in status.conditions if each.status == "True"} if status else ()
        if any(each not in true for each in result.bindingConditions):
            return BindingState.WAITING
    return BindingState.READY


def binding_failure(claim: ResourceClaim) -> Condition | None:
    """Return the condition that says that a device cannot be used."""
    for result, status in _devices(claim):
        for each in status.conditions if status is not None else ():
            if each.type in result.bindingFailureConditions and each.status == "True":
                return each
    return None


def has_binding_conditions(claim: ResourceClaim) -> bool:
    return any(True for _ in _devices(claim))


def _devices(
    claim: ResourceClaim,
) -> Iterator[tuple[DeviceRequestAllocationResult, AllocatedDeviceStatus | None]]:
    """Yield the devices with conditions, and what their driver reports of them."""
    if claim.status.allocation is None:
        return
    known = {(each.driver, each.pool, each.device): each for each in claim.status.devices}
    for result in claim.status.allocation.devices.results:
        if result.bindingConditions:
            yield result, known.get((result.driver, result.pool, result.device))
