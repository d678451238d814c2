"""A library for drivers of Dynamic Resource Allocation: inherit from Driver, call `run`."""

from typing import TYPE_CHECKING

from kedge.machinery.lazy_members import lazy_members

if TYPE_CHECKING:
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

__getattr__ = lazy_members(
    __name__,
    {
        "AllocatedClaim": "kedge.dra.allocated_claim",
        "AllocatedDevice": "kedge.dra.allocated_claim",
        "CdiDeviceNode": "kedge.dra.cdi_spec",
        "CdiMount": "kedge.dra.cdi_spec",
        "CdiSpecs": "kedge.dra.cdi_spec",
        "ClaimContainer": "kedge.dra.messages",
        "ClaimReference": "kedge.dra.messages",
        "ContainerEdits": "kedge.dra.cdi_spec",
        "Device": "kedge.api.resource_v1.resource_slice_types",
        "DeviceAttribute": "kedge.api.resource_v1.resource_slice_types",
        "DeviceCapacity": "kedge.api.resource_v1.resource_slice_types",
        "DeviceHealth": "kedge.dra.messages",
        "DeviceIdentifier": "kedge.dra.messages",
        "Driver": "kedge.dra.driver",
        "HEALTHY_DEVICE": "kedge.dra.messages",
        "KUBELET_DIRECTORY": "kedge.dra.messages",
        "PreparedDevice": "kedge.dra.messages",
        "Refused": "kedge.deviceplugin.plugin",
        "UNHEALTHY_DEVICE": "kedge.dra.messages",
        "UNKNOWN_HEALTH": "kedge.dra.messages",
    },
)
