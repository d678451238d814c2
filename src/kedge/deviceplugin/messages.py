"""The messages of the device plugin API v1beta1; docs/device-plugin.proto says the same for others.

Fields numbered from 50029 on are kedge's own. Programs built without them skip them.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec

VERSION: Final = "v1beta1"
PLUGIN_TYPE: Final = "DevicePlugin"
"""The type of a plugin at a socket of the plugin watcher."""
HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"
DIRECTORY: Final = "/var/lib/kubelet/device-plugins"
"""The default directory of the sockets of plugins and kubelet."""
SOCKET: Final = "kubelet.sock"
"""The socket in that directory at which plugins register."""


class Empty(msgspec.Struct, frozen=True):
    """Nothing."""


class DevicePluginOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The optional calls that a plugin implements."""

    pre_start_required: Annotated[bool, 1] = False
    """PreStartContainer before each start of a container."""
    get_preferred_allocation_available: Annotated[bool, 2] = False
    """GetPreferredAllocation when there is a choice."""
    release_required: Annotated[bool, 50029] = False
    """ReleaseContainer when a container's devices are free again (kedge)."""


class RegisterRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The registration of a plugin."""

    version: Annotated[str, 1] = ""
    endpoint: Annotated[str, 2] = ""
    """Name of its socket, in the directory of the registration socket."""
    resource_name: Annotated[str, 3] = ""
    options: Annotated[DevicePluginOptions | None, 4] = None


class NUMANode(msgspec.Struct, frozen=True, kw_only=True):
    """A NUMA node of the machine."""

    id: Annotated[int, 1] = 0


class TopologyInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The NUMA nodes that a device is close to."""

    nodes: Annotated[Sequence[NUMANode], 1] = ()


class Device(msgspec.Struct, frozen=True):
    """A device that a plugin offers."""

    id: Annotated[str, 1] = ""
    health: Annotated[str, 2] = HEALTHY
    topology: Annotated[TopologyInfo | None, 3] = None


class ListAndWatchResponse(msgspec.Struct, frozen=True, kw_only=True):
    """All devices of a plugin; replaces the previous list."""

    devices: Annotated[Sequence[Device], 1] = ()


class ContainerPreferredAllocationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The available devices for one container; the plugin chooses."""

    available_device_ids: Annotated[Sequence[str], 1] = ()
    must_include_device_ids: Annotated[Sequence[str], 2] = ()
    allocation_size: Annotated[int, 3] = 0


class PreferredAllocationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One choice per container."""

    container_requests: Annotated[Sequence[ContainerPreferredAllocationRequest], 1] = ()


class ContainerPreferredAllocationResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The choice for one container; advice only."""

    device_ids: Annotated[Sequence[str], 1] = ()


class PreferredAllocationResponse(msgspec.Struct, frozen=True, kw_only=True):
    """One preferred allocation per container."""

    container_responses: Annotated[Sequence[ContainerPreferredAllocationResponse], 1] = ()


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The container that gets a device (kedge)."""

    pod_name: Annotated[str, 1] = ""
    pod_namespace: Annotated[str, 2] = ""
    pod_uid: Annotated[str, 3] = ""
    container_name: Annotated[str, 4] = ""


class ContainerAllocateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The devices that one container gets."""

    devices_ids: Annotated[Sequence[str], 1] = ()
    owner: Annotated[Owner | None, 50030] = None


class AllocateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Devices for containers."""

    container_requests: Annotated[Sequence[ContainerAllocateRequest], 1] = ()


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """A file or directory of the machine that a container sees."""

    container_path: Annotated[str, 1] = ""
    host_path: Annotated[str, 2] = ""
    read_only: Annotated[bool, 3] = False


class DeviceSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A device node of the machine that a container gets."""

    container_path: Annotated[str, 1] = ""
    host_path: Annotated[str, 2] = ""
    permissions: Annotated[str, 3] = "rw"
    """Any of r, w (to read and write) and m (to make further nodes of it)."""


class CDIDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device by its name in the Container Device Interface: vendor.com/class=name."""

    name: Annotated[str, 1] = ""


class ContainerAllocateResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The environment, mounts and device nodes that a container needs for its devices."""

    envs: Annotated[Mapping[str, str], 1] = msgspec.field(default_factory=dict)
    mounts: Annotated[Sequence[Mount], 2] = ()
    devices: Annotated[Sequence[DeviceSpec], 3] = ()
    annotations: Annotated[Mapping[str, str], 4] = msgspec.field(default_factory=dict)
    """For the container runtime, not for the pod."""
    cdi_devices: Annotated[Sequence[CDIDevice], 5] = ()


class AllocateResponse(msgspec.Struct, frozen=True, kw_only=True):
    """One response per container."""

    container_responses: Annotated[Sequence[ContainerAllocateResponse], 1] = ()


class PreStartContainerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A container is about to start."""

    devices_ids: Annotated[Sequence[str], 1] = ()
    env: Annotated[Mapping[str, str], 50029] = msgspec.field(default_factory=dict)
    """The effective variables that the pod's spec defines for this container (kedge)."""
    owner: Annotated[Owner | None, 50030] = None


class ReleaseContainerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A container that had devices is gone, and they are about to be free again (kedge)."""

    devices_ids: Annotated[Sequence[str], 1] = ()
    owner: Annotated[Owner | None, 2] = None


# The second way in: a socket in the directory of the plugin watcher.


class PluginInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of the plugin behind a socket."""

    type: Annotated[str, 1] = ""
    name: Annotated[str, 2] = ""
    endpoint: Annotated[str, 3] = ""
    supported_versions: Annotated[Sequence[str], 4] = ()


class RegistrationStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the kubelet accepted a plugin."""

    plugin_registered: Annotated[bool, 1] = False
    error: Annotated[str, 2] = ""
