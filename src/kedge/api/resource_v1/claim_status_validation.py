"""Rules for the status of claims: allocations, consumers, and the state of devices."""

import ipaddress
from collections.abc import Iterator, Sequence, Set
from typing import Final, NamedTuple

from kedge.api import rules
from kedge.api.conditions import validate_conditions
from kedge.api.core_v1.nesting import within
from kedge.api.core_v1.pod.affinity_validation import validate_node_selector
from kedge.api.core_v1.volume.validation import validate_driver_name
from kedge.api.internal_forms import internal_form
from kedge.api.resource_v1 import sizes
from kedge.api.resource_v1.device_claim_validation import (
    RequestNames,
    validate_configuration,
    validate_raw,
    validate_request_ref,
    validate_request_refs,
)
from kedge.api.resource_v1.name_validation import (
    validate_items,
    validate_label,
    validate_pool_name,
    validate_set,
    validate_uid,
)
from kedge.api.resource_v1.resource_claim_status import (
    CONFIG_SOURCES,
    AllocatedDeviceStatus,
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceRequestAllocationResult,
    NetworkDeviceData,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from kedge.api.rules import IMMUTABLE
from kedge.machinery import names
from kedge.machinery.errors import FieldError


class SharedDeviceID(NamedTuple):
    """Names one allocation of one device."""

    driver: str
    pool: str
    device: str
    share: str


_SHOWN_DEVICE: Final[dict[str, dict[str, str]]] = {
    "Driver": {},
    "Pool": {},
    "Device": {},
    "ShareID": {},
}
"""How Kubernetes shows such a name in messages: without its parts."""


def shared_device_id(item: DeviceRequestAllocationResult | AllocatedDeviceStatus) -> SharedDeviceID:
    return SharedDeviceID(item.driver, item.pool, item.device, item.shareID or "")


def allocated_devices(status: ResourceClaimStatus) -> set[SharedDeviceID]:
    if status.allocation is None:
        return set()
    return {shared_device_id(each) for each in status.allocation.devices.results}


def validate_claim_status(
    new: ResourceClaimStatus, old: ResourceClaimStatus, known: RequestNames, *, terminating: bool
) -> Iterator[FieldError]:
    """Everything wrong with a write to the status of a claim with these requests."""
    yield from validate_set(
        "reservedFor", new.reservedFor, sizes.CONSUMERS, _consumer, lambda each: each.uid
    )
    allocated = allocated_devices(new)
    for i, device in enumerate(new.devices):
        yield from within(f"devices[{i}]", _device(device, allocated))
    for i in rules.repeated([shared_device_id(each) for each in new.devices]):
        yield FieldError.duplicate(f"devices[{i}]", _SHOWN_DEVICE)
    yield from _reservations(new, old, terminating=terminating)
    if new.allocation is None:
        return
    if old.allocation is None:
        yield from within("allocation", _allocation(new.allocation, known))
    elif new.allocation != old.allocation:
        yield FieldError.invalid(
            "allocation", internal_form(new.allocation, "*resource.AllocationResult"), IMMUTABLE
        )


def _reservations(
    new: ResourceClaimStatus, old: ResourceClaimStatus, *, terminating: bool
) -> Iterator[FieldError]:
    if not new.reservedFor:
        return
    if new.allocation is None:
        why = "may not be specified when `allocated` is not set"
        yield FieldError.forbidden("reservedFor", why)
    elif terminating and any(each not in old.reservedFor for each in new.reservedFor):
        why = (
            "new entries may not be added while `deallocationRequested` or `deletionTimestamp` "
            "are set"
        )
        yield FieldError.forbidden("reservedFor", why)


def _consumer(consumer: ResourceClaimConsumerReference) -> Iterator[FieldError]:
    for name in ("resource", "name", "uid"):
        if not getattr(consumer, name):
            yield FieldError.required(name)


def _device(device: AllocatedDeviceStatus, allocated: Set[SharedDeviceID]) -> Iterator[FieldError]:
    yield from validate_driver_name("driver", device.driver)
    yield from validate_pool_name("pool", device.pool)
    yield from validate_label("device", device.device)
    if device.shareID is not None:
        yield from validate_uid("shareID", device.shareID)
    if shared_device_id(device) not in allocated:
        yield FieldError.invalid("", _SHOWN_DEVICE, "must be an allocated device in the claim")
    if len(device.conditions) > sizes.DEVICE_CONDITIONS:
        yield FieldError.too_many("conditions", len(device.conditions), sizes.DEVICE_CONDITIONS)
    yield from validate_conditions("conditions", device.conditions)
    if device.data is not None:
        yield from validate_raw("data", device.data, sizes.DEVICE_DATA_BYTES)
    if device.networkData is not None:
        yield from within("networkData", _network(device.networkData))


def _network(data: NetworkDeviceData) -> Iterator[FieldError]:
    if len(data.interfaceName.encode()) > sizes.INTERFACE_NAME_BYTES:
        yield FieldError.too_long("interfaceName", sizes.INTERFACE_NAME_BYTES)
    if len(data.hardwareAddress.encode()) > sizes.HARDWARE_ADDRESS_BYTES:
        yield FieldError.too_long("hardwareAddress", sizes.HARDWARE_ADDRESS_BYTES)
    yield from validate_set("ips", data.ips, sizes.ADDRESSES, _address, str)


def _address(value: str) -> Iterator[FieldError]:
    try:
        interface = ipaddress.ip_interface(value)
        if "/" not in value:
            raise ValueError
    except ValueError:
        why = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
        yield FieldError.invalid("", value, why)
        return
    canonical = interface.with_prefixlen
    if value != canonical:
        yield FieldError.invalid("", value, f'must be in canonical form ("{canonical}")')


def _allocation(allocation: AllocationResult, known: RequestNames) -> Iterator[FieldError]:
    devices = allocation.devices
    yield from validate_items(
        "devices.results", devices.results, sizes.RESULTS, lambda each: _result(each, known)
    )
    yield from validate_items(
        "devices.config",
        devices.config,
        2 * sizes.CONFIGURATIONS,
        lambda each: _configuration(each, known),
    )
    if allocation.nodeSelector is not None:
        yield from within("nodeSelector", validate_node_selector(allocation.nodeSelector))


def _result(result: DeviceRequestAllocationResult, known: RequestNames) -> Iterator[FieldError]:
    yield from validate_request_ref("request", result.request, known)
    yield from validate_driver_name("driver", result.driver)
    yield from validate_pool_name("pool", result.pool)
    yield from validate_label("device", result.device)
    yield from validate_binding_conditions(
        result.bindingConditions, result.bindingFailureConditions
    )
    if result.shareID is not None:
        yield from validate_uid("shareID", result.shareID)


def validate_binding_conditions(
    conditions: Sequence[str], failures: Sequence[str]
) -> Iterator[FieldError]:
    """The names of conditions that a pod waits for, and of those that end the wait."""
    limit = sizes.BINDING_CONDITIONS
    yield from validate_set("bindingConditions", conditions, limit, _condition_name, str)
    yield from validate_set("bindingFailureConditions", failures, limit, _condition_name, str)
    for i, failure in enumerate(failures):
        if failure in conditions:
            why = "bindingFailureConditions must not overlap with bindingConditions"
            yield FieldError.invalid(f"bindingFailureConditions[{i}]", failure, why)
    if failures and not conditions:
        why = "bindingConditions are required to use bindingFailureConditions"
        yield FieldError.invalid("bindingConditions", None, why)
    if conditions and not failures:
        why = "bindingFailureConditions are required to use bindingConditions"
        yield FieldError.invalid("bindingFailureConditions", None, why)


def _condition_name(name: str) -> Iterator[FieldError]:
    yield from rules.problems("", name, names.qualified_name(name))


def _configuration(
    config: DeviceAllocationConfiguration, known: RequestNames
) -> Iterator[FieldError]:
    yield from rules.one_of("source", config.source, CONFIG_SOURCES)
    yield from validate_request_refs(config.requests, known)
    yield from validate_configuration(config.opaque)
