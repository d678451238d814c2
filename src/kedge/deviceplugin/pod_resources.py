"""The messages of the PodResources API: which container has which devices."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from kedge.deviceplugin.messages import Empty, TopologyInfo
from kedge.deviceplugin.methods import Method


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerDevices:
    """Devices of one resource."""

    resource_name: Annotated[str, 1] = ""
    device_ids: Annotated[Sequence[str], 2] = ()
    topology: Annotated[TopologyInfo | None, 3] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerResources:
    """What one container has."""

    name: Annotated[str, 1] = ""
    devices: Annotated[Sequence[ContainerDevices], 2] = ()
    cpu_ids: Annotated[Sequence[int], 3] = ()
    """Processors that are the container's alone; kedge gives none away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodResources:
    """What one pod has."""

    name: Annotated[str, 1] = ""
    namespace: Annotated[str, 2] = ""
    containers: Annotated[Sequence[ContainerResources], 3] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPodResourcesResponse:
    """What all pods have."""

    pod_resources: Annotated[Sequence[PodResources], 1] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GetPodResourcesRequest:
    """Which pod."""

    pod_name: Annotated[str, 1] = ""
    pod_namespace: Annotated[str, 2] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GetPodResourcesResponse:
    """What it has."""

    pod_resources: Annotated[PodResources | None, 1] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatableResourcesResponse:
    """What pods may have, whether or not they do."""

    devices: Annotated[Sequence[ContainerDevices], 1] = ()
    cpu_ids: Annotated[Sequence[int], 2] = ()


_V1: Final = "v1.PodResourcesLister"
LIST: Final = Method(_V1, "List", Empty, ListPodResourcesResponse)
GET: Final = Method(_V1, "Get", GetPodResourcesRequest, GetPodResourcesResponse)
ALLOCATABLE: Final = Method(_V1, "GetAllocatableResources", Empty, AllocatableResourcesResponse)
LIST_ALPHA: Final = Method("v1alpha1.PodResourcesLister", "List", Empty, ListPodResourcesResponse)
