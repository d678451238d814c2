"""A library for device plugins: inherit from Plugin, list the devices, call `run`."""

from kedge.deviceplugin.messages import (
    DIRECTORY,
    HEALTHY,
    UNHEALTHY,
    CDIDevice,
    ContainerAllocateResponse,
    Device,
    DeviceSpec,
    Mount,
    NUMANode,
    Owner,
    TopologyInfo,
)
from kedge.deviceplugin.plugin import Plugin, Refused

__all__ = [
    "DIRECTORY",
    "HEALTHY",
    "UNHEALTHY",
    "CDIDevice",
    "ContainerAllocateResponse",
    "Device",
    "DeviceSpec",
    "Mount",
    "NUMANode",
    "Owner",
    "Plugin",
    "Refused",
    "TopologyInfo",
]
