"""The dependencies of a pod's life on the other rooms of the node, as small protocols."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.status import ResourceStatus
from kedge.api.core_v1.references import ObjectReference
from kedge.api.core_v1.secret import Secret
from kedge.api.model import Object
from kedge.machinery.clock import Clock
from kedge.node.network.network_place import MACHINE, NetworkPlace
from kedge.node.pod.files import PodFiles
from kedge.node.runtime.runtime import (
    ContainerDevice,
    ContainerLimits,
    ContainerMount,
    DnsConfig,
    Runtime,
)


class ImageFailure(Exception):
    """An image is not available. A waiting container shows the reason."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        """ErrImagePull, ErrImageNeverPull, InvalidImageName, ImageInspectError,
        RegistryUnavailable or SignatureValidationFailed."""
        self.message = message


class VolumeFailure(Exception):
    """A volume cannot be mounted. It becomes an event; the pod waits and mounting is retried."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        """The reason of the event, usually FailedMount."""
        self.message = message


class ConfigFailure(Exception):
    """The configuration of a container is invalid or incomplete. The container waits with
    CreateContainerConfigError and this text, and its start is retried."""


class DeviceFailure(Exception):
    """The devices of a pod cannot be allocated, so the node rejects the pod."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class ClaimFailure(Exception):
    """A resource claim cannot be prepared or unprepared now. It becomes an event, and is
    retried."""


class ResolvedImage(Protocol):
    """An image on this machine."""

    @property
    def id(self) -> str:
        """The value of ContainerConfig.image."""
        ...

    @property
    def reference(self) -> str:
        """The `imageID` of a container's status: the name with its digest, or the id."""
        ...

    @property
    def name(self) -> str:
        """The `image` of a container's status: the full name with its tag."""
        ...

    @property
    def size(self) -> int:
        """Bytes."""
        ...

    @property
    def user(self) -> str:
        """The user of its configuration: a number or a name, optionally with `:group`; or empty."""
        ...

    @property
    def stop_signal(self) -> str:
        """The stop signal of its configuration, or empty."""
        ...


class ImageResolver(Protocol):
    """Finds images on the machine, and pulls the others."""

    async def resolve(
        self, name: str, policy: str, secrets: Sequence[Secret], progress: Callable[[], None]
    ) -> ResolvedImage:
        """Return the image with a name as written in the manifest; `policy` is Always,
        IfNotPresent or Never.

        Calls `progress` once when it begins to pull from a registry, and not for an image that is
        on the machine. Raises ImageFailure. The caller backs off, not this method.
        """
        ...


class PullSecretReader(Protocol):
    """Reads the imagePullSecrets of pods."""

    async def of(self, pod: Pod) -> Sequence[Secret]:
        """Return the secrets that exist; missing ones are left out, as in the kubelet."""
        ...


class VolumeMounter(Protocol):
    """Mounts the volumes of pods below the pods' own directories."""

    async def mount(self, pod: Pod) -> None:
        """Mount all volumes of the pod, and update the content of those that are mounted.
        Idempotent, also after a restart of the agent. Raises VolumeFailure."""
        ...

    async def mounts_of(
        self, pod: Pod, container: Container, env: Sequence[tuple[str, str]]
    ) -> list[ContainerMount]:
        """Return the volume mounts of a container; `env` is for subPathExpr. Called after `mount`.
        Volumes of images are pulled and mounted here. Raises ImageFailure, VolumeFailure, or
        ConfigFailure for an invalid subPath."""
        ...

    def devices_of(self, pod: Pod, container: Container) -> list[ContainerDevice]:
        """Return the block volumes of a container. Called after `mount`. Raises ConfigFailure."""
        ...

    async def unmount(self, uid: str) -> None:
        """Unmount and delete all volumes of a pod, given only its uid.
        Idempotent. Raises VolumeFailure if a volume is still in use."""
        ...


class ContainerEnvironment(msgspec.Struct, frozen=True):
    """The environment variables of one container, with references expanded."""

    own: Mapping[str, str]
    """The variables that the pod's spec defines."""
    services: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The variables with the addresses of services, except those that the pod's spec defines."""


class EnvironmentResolver(Protocol):
    """Resolves the environment variables of containers."""

    async def environment(
        self, pod: Pod, container: Container, pod_ips: Sequence[str]
    ) -> ContainerEnvironment:
        """Raises ConfigFailure, e.g. `configmap "a" not found`."""
        ...


class DeviceGrant(msgspec.Struct, frozen=True):
    """Everything that the devices of a container add to it."""

    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    mounts: Sequence[ContainerMount] = ()
    devices: Sequence[ContainerDevice] = ()
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    """For the runtime."""
    groups: Sequence[int] = ()
    """Supplemental groups."""


class DeviceAllocator(Protocol):
    """Allocates devices of the machine to pods."""

    def manages(self, resource: str) -> bool:
        """Return whether a resource consists of devices, which `allocate` grants or refuses."""
        ...

    async def allocate(self, pod: Pod) -> None:
        """Allocate the devices of all containers of a pod, before anything else is created for it.
        Idempotent, also after a restart of the agent. Raises DeviceFailure."""
        ...

    def grant(self, pod: Pod, container: Container, cdi_devices: Sequence[str] = ()) -> DeviceGrant:
        """Return what the container's devices and these CDI devices add to it. Raises
        ConfigFailure."""
        ...

    async def pre_start(self, pod: Pod, container: Container, env: Mapping[str, str]) -> None:
        """Call PreStartContainer of the container's device plugins, as the last step before its
        start; `env` holds the variables of the pod's spec. Raises ConfigFailure."""
        ...

    def release(self, uid: str) -> None:
        """Release the devices of a pod. Idempotent."""
        ...

    def pod_uids(self) -> Iterable[str]:
        """Return the uids of the pods that have devices."""
        ...

    def health(self, uid: str) -> Mapping[str, Sequence[ResourceStatus]]:
        """Return the health of a pod's devices, by container name."""
        ...


class ClaimPreparer(Protocol):
    """Has drivers prepare the resource claims of pods (kedge.node.resource_claims)."""

    async def prepare(self, pod: Pod) -> None:
        """Prepare all claims of a pod, before its sandbox is created. Idempotent. Raises
        ClaimFailure."""
        ...

    async def unprepare(self, uid: str) -> None:
        """Unprepare the claims that only this pod uses, after its containers have ended.
        Idempotent. Raises ClaimFailure."""
        ...

    def cdi_devices(self, pod: Pod, container: Container) -> Sequence[str]:
        """Return the CDI devices of the claims of a container. Raises ConfigFailure."""
        ...

    def pod_uids(self) -> Iterable[str]:
        """Return the uids of the pods that have claims."""
        ...

    def health(self, pod: Pod) -> Mapping[str, Sequence[ResourceStatus]]:
        """Return the health of the devices of a pod's claims, by container name."""
        ...


class DeviceAccessCheck(Protocol):
    """Checks whether a pod may use the objects that the variables of a container name."""

    async def check(self, pod: Pod, container: Container, env: Mapping[str, str]) -> None:
        """Raises ConfigFailure if the pod's service account may not use one of them."""
        ...


class PodCgroups(Protocol):
    """Creates and removes the cgroups of pods, and computes the limits of containers.

    The resources in the spec of the pods passed here are the allocated ones.
    """

    def ensure(self, pod: Pod) -> str:
        """Create the pod's cgroup and set its limits. Return SandboxConfig.cgroup_parent, empty
        if the node has no cgroups. Idempotent. Raises OSError."""
        ...

    def resources(self, pod: Pod, container: Container) -> ContainerLimits:
        """Return the limits of the container's own cgroup."""
        ...

    def update(self, pod: Pod) -> None:
        """Set the limits of the pod's cgroup after a resize. Raises OSError."""
        ...

    def remove(self, uid: str) -> None:
        """Remove the cgroup of a pod without processes. Idempotent."""
        ...

    def pod_uids(self) -> Iterable[str]:
        """Return the uids of the pods that have a cgroup."""
        ...


class UserIdAllocator(Protocol):
    """Allocates id ranges of the machine to pods with a user namespace
    (kedge.node.host.user_namespaces)."""

    async def ensure(self, pod: Pod) -> int:
        """Return the machine's id of the pod's id 0; 0 for a pod without a user namespace.
        Idempotent. Raises RuntimeFailure."""
        ...

    async def release(self, uid: str) -> None:
        """Release the pod's ids. Idempotent."""
        ...


class EventSink(Protocol):
    """Records events (kedge.client.events.Recorder)."""

    def record(
        self,
        obj: Object | ObjectReference,
        type: str,
        reason: str,
        message: str,
        *,
        field_path: str = "",
    ) -> None:
        """Record an event; `type` is Normal or Warning. Never waits and never raises. Events about
        a container name its pod, with a field path such as `spec.containers{main}`."""
        ...


class RuntimeClassCheck(Protocol):
    """Checks whether the node has the runtime that a pod requests."""

    async def check(self, pod: Pod) -> None:
        """Raises RuntimeFailure if the node has no runtime for the pod."""
        ...


class ThisNode(Protocol):
    """The node's own object."""

    @property
    def node(self) -> Node:
        """The object as last seen: labels, taints, allocatable, addresses."""
        ...

    @property
    def exposed(self) -> Sequence[str]:
        """Keys, or patterns of keys, of the labels that pods may read besides zone and region."""
        ...


class PodDependencies(msgspec.Struct, frozen=True):
    """The dependencies that all pods of a node share."""

    runtime: Runtime
    images: ImageResolver
    pull_secrets: PullSecretReader
    volumes: VolumeMounter
    environment: EnvironmentResolver
    devices: DeviceAllocator
    claims: ClaimPreparer
    device_access: DeviceAccessCheck
    cgroups: PodCgroups
    user_ids: UserIdAllocator
    events: EventSink
    files: PodFiles
    runtime_classes: RuntimeClassCheck
    this_node: ThisNode
    clock: Clock
    host_dns: Callable[[], DnsConfig]
    """Reads the machine's /etc/resolv.conf."""
    cluster_dns: Callable[[], Awaitable[str | None]]
    """Returns the address of the cluster's DNS server; empty without one, None if pods have no
    network of their own."""
    host_hosts: Callable[[], str]
    """Reads the machine's /etc/hosts."""
    seccomp_profiles: Path
    """The directory of seccomp profiles of type Localhost."""
    security_modules: frozenset[str] = frozenset()
    """The ones of AppArmor and SELinux that the machine enforces."""
    network: NetworkPlace = MACHINE
    """Where pods have their addresses."""

    def host_ips(self) -> list[str]:
        """Return the node's addresses, at most one of each family."""
        addresses = self.this_node.node.status.addresses
        return [each.address for each in addresses if each.type == "InternalIP"][:2]
