"""A library for drivers of Dynamic Resource Allocation: inherit from Driver, call `run`."""

from kedge.api.resource_v1.resource_slice_types import Device, DeviceAttribute, DeviceCapacity
from kedge.deviceplugin.plugin import Refused
from kedge.dra.allocated_claim import AllocatedClaim, AllocatedDevice
from kedge.dra.cdi_spec import CdiDeviceNode, CdiMount, CdiSpecs, ContainerEdits
from kedge.dra.driver import Driver
from kedge.dra.messages import (
    HEALTHY_DEVICE,
    KUBELET_DIRECTORY,
    UNHEALTHY_DEVICE,
    UNKNOWN_HEALTH,
    ClaimContainer,
    ClaimReference,
    DeviceHealth,
    DeviceIdentifier,
    PreparedDevice,
)

__all__ = [
    "HEALTHY_DEVICE",
    "KUBELET_DIRECTORY",
    "UNHEALTHY_DEVICE",
    "UNKNOWN_HEALTH",
    "AllocatedClaim",
    "AllocatedDevice",
    "CdiDeviceNode",
    "CdiMount",
    "CdiSpecs",
    "ClaimContainer",
    "ClaimReference",
    "ContainerEdits",
    "Device",
    "DeviceAttribute",
    "DeviceCapacity",
    "DeviceHealth",
    "DeviceIdentifier",
    "Driver",
    "PreparedDevice",
    "Refused",
]
