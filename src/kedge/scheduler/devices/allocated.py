"""Devices that are allocated: whole ones, and parts of shared ones."""

from collections.abc import Iterable

import msgspec

from kedge.api.resource_v1.resource_claim_status import AllocationResult
from kedge.machinery.quantity import Quantity
from kedge.scheduler.devices.pools import DeviceID


class AllocatedDevices(msgspec.Struct, frozen=True):
    """The devices of all allocated claims; devices for admin access are free for others."""

    whole: set[DeviceID] = msgspec.field(default_factory=set)
    shared: dict[DeviceID, dict[str, Quantity]] = msgspec.field(default_factory=dict)
    """By device: the amounts that all claims together consume."""

    def __contains__(self, id_: DeviceID) -> bool:
        return id_ in self.whole or id_ in self.shared


def allocated_devices(allocations: Iterable[AllocationResult]) -> AllocatedDevices:
    """Return the devices of some allocations."""
    found = AllocatedDevices()
    for allocation in allocations:
        for result in allocation.devices.results:
            if result.adminAccess:
                continue
            id_ = DeviceID(result.driver, result.pool, result.device)
            if result.shareID is None:
                found.whole.add(id_)
                continue
            amounts = found.shared.setdefault(id_, {})
            for name, amount in result.consumedCapacity.items():
                amounts[name] = amounts[name] + amount if name in amounts else amount
    return found
