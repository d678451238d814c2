"""The messages of the PodResources API: the devices of each container."""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from kedge.deviceplugin.messages import CDIDevice, Empty, TopologyInfo
from kedge.deviceplugin.methods import Method


class ContainerDevices(msgspec.Struct, frozen=True, kw_only=True):
    """Devices of one resource."""

    resource_name: Annotated[str, 1] = ""
    device_ids: Annotated[Sequence[str], 2] = ()
    topology: Annotated[TopologyInfo | None, 3] = None


class ClaimResource(msgspec.Struct, frozen=True, kw_only=True):
    """A device that a resource claim has."""

    cdi_devices: Annotated[Sequence[CDIDevice], 1] = ()
    driver_name: Annotated[str, 2] = ""
    pool_name: Annotated[str, 3] = ""
    device_name: Annotated[str, 4] = ""
    share_id: Annotated[str | None, 5] = None


class DynamicResource(msgspec.Struct, frozen=True, kw_only=True):
    """A resource claim of a container."""

    claim_name: Annotated[str, 2] = ""
    claim_namespace: Annotated[str, 3] = ""
    claim_resources: Annotated[Sequence[ClaimResource], 4] = ()


class ContainerResources(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of one container."""

    name: Annotated[str, 1] = ""
    devices: Annotated[Sequence[ContainerDevices], 2] = ()
    cpu_ids: Annotated[Sequence[int], 3] = ()
    """Processors that are the container's alone; kedge gives none away."""
    dynamic_resources: Annotated[Sequence[DynamicResource], 5] = ()


class PodResources(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of one pod."""

    name: Annotated[str, 1] = ""
    namespace: Annotated[str, 2] = ""
    containers: Annotated[Sequence[ContainerResources], 3] = ()


class ListPodResourcesResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of all pods."""

    pod_resources: Annotated[Sequence[PodResources], 1] = ()


class GetPodResourcesRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Names one pod."""

    pod_name: Annotated[str, 1] = ""
    pod_namespace: Annotated[str, 2] = ""


class GetPodResourcesResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of the named pod."""

    pod_resources: Annotated[PodResources | None, 1] = None


class AllocatableResourcesResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of the node, allocated or not."""

    devices: Annotated[Sequence[ContainerDevices], 1] = ()
    cpu_ids: Annotated[Sequence[int], 2] = ()


_V1: Final = "v1.PodResourcesLister"
LIST: Final = Method(_V1, "List", Empty, ListPodResourcesResponse)
GET: Final = Method(_V1, "Get", GetPodResourcesRequest, GetPodResourcesResponse)
ALLOCATABLE: Final = Method(_V1, "GetAllocatableResources", Empty, AllocatableResourcesResponse)
LIST_ALPHA: Final = Method("v1alpha1.PodResourcesLister", "List", Empty, ListPodResourcesResponse)
