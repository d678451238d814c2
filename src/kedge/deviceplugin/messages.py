"""The messages of the device plugin API v1beta1; docs/device-plugin.proto says the same for others.

Fields numbered from 50029 on are kedge's own. Programs built without them skip them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final

VERSION: Final = "v1beta1"
PLUGIN_TYPE: Final = "DevicePlugin"
"""The type of a plugin at a socket of the plugin watcher."""
HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"
DIRECTORY: Final = "/var/lib/kubelet/device-plugins"
"""The default directory of the sockets of plugins and kubelet."""
SOCKET: Final = "kubelet.sock"
"""The socket in that directory at which plugins register."""


@dataclass(frozen=True, slots=True)
class Empty:
    """Nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePluginOptions:
    """The optional calls that a plugin implements."""

    pre_start_required: Annotated[bool, 1] = False
    """PreStartContainer before each start of a container."""
    get_preferred_allocation_available: Annotated[bool, 2] = False
    """GetPreferredAllocation when there is a choice."""
    release_required: Annotated[bool, 50029] = False
    """ReleaseContainer when a container's devices are free again (kedge)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterRequest:
    """The registration of a plugin."""

    version: Annotated[str, 1] = ""
    endpoint: Annotated[str, 2] = ""
    """Name of its socket, in the directory of the registration socket."""
    resource_name: Annotated[str, 3] = ""
    options: Annotated[DevicePluginOptions | None, 4] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NUMANode:
    """A NUMA node of the machine."""

    id: Annotated[int, 1] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyInfo:
    """The NUMA nodes that a device is close to."""

    nodes: Annotated[Sequence[NUMANode], 1] = ()


@dataclass(frozen=True, slots=True)
class Device:
    """A device that a plugin offers."""

    id: Annotated[str, 1] = ""
    health: Annotated[str, 2] = HEALTHY
    topology: Annotated[TopologyInfo | None, 3] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListAndWatchResponse:
    """All devices of a plugin; replaces the previous list."""

    devices: Annotated[Sequence[Device], 1] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPreferredAllocationRequest:
    """The available devices for one container; the plugin chooses."""

    available_device_ids: Annotated[Sequence[str], 1] = ()
    must_include_device_ids: Annotated[Sequence[str], 2] = ()
    allocation_size: Annotated[int, 3] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferredAllocationRequest:
    """One choice per container."""

    container_requests: Annotated[Sequence[ContainerPreferredAllocationRequest], 1] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPreferredAllocationResponse:
    """The choice for one container; advice only."""

    device_ids: Annotated[Sequence[str], 1] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferredAllocationResponse:
    """One preferred allocation per container."""

    container_responses: Annotated[Sequence[ContainerPreferredAllocationResponse], 1] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The container that gets a device (kedge)."""

    pod_name: Annotated[str, 1] = ""
    pod_namespace: Annotated[str, 2] = ""
    pod_uid: Annotated[str, 3] = ""
    container_name: Annotated[str, 4] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerAllocateRequest:
    """The devices that one container gets."""

    devices_ids: Annotated[Sequence[str], 1] = ()
    owner: Annotated[Owner | None, 50030] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateRequest:
    """Devices for containers."""

    container_requests: Annotated[Sequence[ContainerAllocateRequest], 1] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A file or directory of the machine that a container sees."""

    container_path: Annotated[str, 1] = ""
    host_path: Annotated[str, 2] = ""
    read_only: Annotated[bool, 3] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec:
    """A device node of the machine that a container gets."""

    container_path: Annotated[str, 1] = ""
    host_path: Annotated[str, 2] = ""
    permissions: Annotated[str, 3] = "rw"
    """Any of r, w (to read and write) and m (to make further nodes of it)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CDIDevice:
    """A device by its name in the Container Device Interface: vendor.com/class=name."""

    name: Annotated[str, 1] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerAllocateResponse:
    """The environment, mounts and device nodes that a container needs for its devices."""

    envs: Annotated[Mapping[str, str], 1] = field(default_factory=dict)
    mounts: Annotated[Sequence[Mount], 2] = ()
    devices: Annotated[Sequence[DeviceSpec], 3] = ()
    annotations: Annotated[Mapping[str, str], 4] = field(default_factory=dict)
    """For the container runtime, not for the pod."""
    cdi_devices: Annotated[Sequence[CDIDevice], 5] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateResponse:
    """One response per container."""

    container_responses: Annotated[Sequence[ContainerAllocateResponse], 1] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreStartContainerRequest:
    """A container is about to start."""

    devices_ids: Annotated[Sequence[str], 1] = ()
    env: Annotated[Mapping[str, str], 50029] = field(default_factory=dict)
    """The effective variables that the pod's spec defines for this container (kedge)."""
    owner: Annotated[Owner | None, 50030] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseContainerRequest:
    """A container that had devices is gone, and they are about to be free again (kedge)."""

    devices_ids: Annotated[Sequence[str], 1] = ()
    owner: Annotated[Owner | None, 2] = None


# The second way in: a socket in the directory of the plugin watcher.


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginInfo:
    """The identity of the plugin behind a socket."""

    type: Annotated[str, 1] = ""
    name: Annotated[str, 2] = ""
    endpoint: Annotated[str, 3] = ""
    supported_versions: Annotated[Sequence[str], 4] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationStatus:
    """Whether the kubelet accepted a plugin."""

    plugin_registered: Annotated[bool, 1] = False
    error: Annotated[str, 2] = ""
