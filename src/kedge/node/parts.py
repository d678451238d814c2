"""Parts: what the life of a pod needs of the other rooms of the node, as small protocols."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.status import ResourceStatus
from kedge.api.core_v1.references import ObjectReference
from kedge.api.core_v1.secret import Secret
from kedge.api.model import Object
from kedge.machinery.clock import Clock
from kedge.node.files import PodFiles
from kedge.node.runtime.runtime import Device, Dns, Mount, Resources, Runtime


class ImageFailure(Exception):
    """An image cannot be had. The reason is what a waiting container shows."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        """ErrImagePull, ErrImageNeverPull, InvalidImageName, ImageInspectError,
        RegistryUnavailable or SignatureValidationFailed."""
        self.message = message


class VolumeFailure(Exception):
    """A volume cannot be made. Becomes an event; the pod waits and is tried again."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        """FailedMount, or whatever else the event is to be called."""
        self.message = message


class ConfigFailure(Exception):
    """A container's configuration does not work out: the container waits with
    CreateContainerConfigError and this text, and is tried again."""


class DeviceFailure(Exception):
    """A pod cannot get its devices, and so cannot be taken."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Image(Protocol):
    """An image that is on this machine."""

    @property
    def id(self) -> str:
        """What ContainerSpec.image wants."""
        ...

    @property
    def reference(self) -> str:
        """What `imageID` in a container's status shows: the name with its digest, or the id."""
        ...

    @property
    def name(self) -> str:
        """What `image` in a container's status shows: the whole name with its tag."""
        ...

    @property
    def size(self) -> int:
        """Bytes."""
        ...

    @property
    def user(self) -> str:
        """User its configuration names: a number, a name, with or without `:group`; or empty."""
        ...

    @property
    def stop_signal(self) -> str:
        """Signal its configuration names, or empty."""
        ...


class Images(Protocol):
    """Finds images, and fetches those that are not here."""

    async def resolve(
        self, name: str, policy: str, secrets: Sequence[Secret], progress: Callable[[], None]
    ) -> Image:
        """The image behind a name as the manifest spells it; `policy` is Always, IfNotPresent or
        Never. Calls `progress` once, when it begins to fetch from a registry; an image that is
        found on the machine makes no call. Raises ImageFailure. It does not back off: whoever
        asks does."""
        ...


class PullSecrets(Protocol):
    """Reads the secrets that a pod wants its images pulled with."""

    async def of(self, pod: Pod) -> Sequence[Secret]:
        """Those that are there; ones that are missing are left out, as upstream does."""
        ...


class Volumes(Protocol):
    """Makes the volumes of pods. Everything lives below the pod's own directory."""

    async def mount(self, pod: Pod) -> None:
        """Make every volume of the pod ready, and bring those that are there already up to date.
        Idempotent; also right after a restart of the agent. Raises VolumeFailure."""
        ...

    async def mounts_of(
        self, pod: Pod, container: Container, env: Sequence[tuple[str, str]]
    ) -> list[Mount]:
        """Where the container sees its volumes; `env` is for subPathExpr. Called after `mount`.
        Raises VolumeFailure, or ConfigFailure where a subPath does not work out."""
        ...

    async def unmount(self, uid: str) -> None:
        """Take down and delete all volumes of a pod, which may be known by its uid only.
        Idempotent; raises VolumeFailure if something is still in use."""
        ...


@dataclass(frozen=True)
class Environ:
    """The variables of one container, references expanded."""

    own: Mapping[str, str]
    """Those that the pod's spec defines."""
    services: Mapping[str, str] = field(default_factory=dict)
    """Those that tell where services are; what the pod defines itself is not among them."""


class Environment(Protocol):
    """Works out the variables of containers."""

    async def environment(self, pod: Pod, container: Container, pod_ips: Sequence[str]) -> Environ:
        """Raises ConfigFailure, e.g. `configmap "a" not found`."""
        ...


@dataclass(frozen=True)
class Given:
    """What the devices of a container bring with them."""

    env: Mapping[str, str] = field(default_factory=dict)
    mounts: Sequence[Mount] = ()
    devices: Sequence[Device] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    """For the runtime."""
    groups: Sequence[int] = ()
    """Supplemental ones."""


class Devices(Protocol):
    """Gives devices of the machine to pods, and has their plugins make them ready."""

    def manages(self, resource: str) -> bool:
        """Whether amounts of a resource are devices, which `allocate` gives or refuses."""
        ...

    async def allocate(self, pod: Pod) -> None:
        """Give every container of a pod the devices it asks for, before anything of the pod is
        made. Idempotent, also after a restart of the agent. Raises DeviceFailure."""
        ...

    def given(self, pod: Pod, container: Container) -> Given:
        """What the container's devices bring with them. Raises ConfigFailure."""
        ...

    async def pre_start(self, pod: Pod, container: Container, env: Mapping[str, str]) -> None:
        """Have the container's devices made ready, the last thing before a start; `env` is what
        the pod's spec defines. Raises ConfigFailure."""
        ...

    def release(self, uid: str) -> None:
        """A pod needs its devices no more. Idempotent."""
        ...

    def known(self) -> Iterable[str]:
        """Uids of the pods that have devices."""
        ...

    def health(self, uid: str) -> Mapping[str, Sequence[ResourceStatus]]:
        """By container: how the pod's devices are."""
        ...


class PodCgroups(Protocol):
    """Makes and removes the cgroups of pods, and says what containers get.

    What a pod is allotted is in its spec: callers pass a pod whose resources are the allocated
    ones.
    """

    def ensure(self, pod: Pod) -> str:
        """Make the pod's cgroup and set its limits; returns SandboxSpec.cgroup_parent, empty
        where there are no cgroups. Idempotent. Raises OSError."""
        ...

    def resources(self, pod: Pod, container: Container) -> Resources:
        """What the container's own cgroup is to be limited to."""
        ...

    def update(self, pod: Pod) -> None:
        """Set the limits of the pod's cgroup anew, after a resize. Raises OSError."""
        ...

    def remove(self, uid: str) -> None:
        """Remove the cgroup of a pod whose processes are gone. Idempotent."""
        ...

    def known(self) -> Iterable[str]:
        """Uids of the pods that have a cgroup, to find those that nobody needs any more."""
        ...


class UserIds(Protocol):
    """Allocates id ranges of the machine to pods with a user namespace
    (kedge.node.user_namespaces)."""

    async def ensure(self, pod: Pod) -> int:
        """Return the machine's id of the pod's id 0; 0 for a pod without a user namespace.
        Idempotent. Raises RuntimeFailure."""
        ...

    async def release(self, uid: str) -> None:
        """Release the pod's ids. Idempotent."""
        ...


class Events(Protocol):
    """Tells the users what happens (kedge.client.events.Recorder)."""

    def record(
        self,
        obj: Object | ObjectReference,
        type: str,
        reason: str,
        message: str,
        *,
        field_path: str = "",
    ) -> None:
        """`type` is Normal or Warning. Never waits and never raises. Events about a container are
        told of its pod, with a field path such as `spec.containers{main}`."""
        ...


class Classes(Protocol):
    """Which runtimes there are for pods that ask for one."""

    async def check(self, pod: Pod) -> None:
        """Raises RuntimeFailure if there is none for the pod."""
        ...


class ThisNode(Protocol):
    """What the pods need to know of the node they are on."""

    @property
    def node(self) -> Node:
        """The node's own object as last seen: labels, taints, allocatable, addresses."""
        ...

    @property
    def exposed(self) -> Sequence[str]:
        """Which of its labels pods may know besides its place: keys, or patterns of keys."""
        ...


@dataclass(frozen=True)
class Parts:
    """Everything that the pods of a node share."""

    runtime: Runtime
    images: Images
    secrets: PullSecrets
    volumes: Volumes
    environment: Environment
    devices: Devices
    cgroups: PodCgroups
    user_ids: UserIds
    events: Events
    files: PodFiles
    classes: Classes
    here: ThisNode
    clock: Clock
    dns: Callable[[], Dns]
    """Where the machine itself looks up names."""
    hosts: Callable[[], str]
    """The machine's own /etc/hosts."""
    profiles: Path
    """Where seccomp profiles of type Localhost are."""
    security_modules: frozenset[str] = frozenset()
    """Which of AppArmor and SELinux the machine enforces."""

    def host_ips(self) -> list[str]:
        """The node's addresses, one of each family."""
        addresses = self.here.node.status.addresses
        return [each.address for each in addresses if each.type == "InternalIP"][:2]
