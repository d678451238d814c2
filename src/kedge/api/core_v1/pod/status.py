"""PodStatus: the observed state of a pod and its containers."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import field

from kedge.api.core_v1.pod.container import ResourceRequirements
from kedge.api.model import SET, Int32, Model, Time, keyed, listed_by, merged
from kedge.machinery.quantity import Quantity


class ContainerStateWaiting(Model):
    """The container has not started yet."""

    reason: str = ""
    """Why, as one word."""
    message: str = ""
    """Why, for people."""


class ContainerStateRunning(Model):
    """The container runs."""

    startedAt: Time = ""
    """Since when."""


class ContainerStateTerminated(Model):
    """The container has ended."""

    __required__ = ("exitCode",)

    exitCode: Int32 = field(default_factory=int)
    """Exit code of its last run."""
    signal: Int32 = 0
    """Signal that ended it."""
    reason: str = ""
    """Why, as one word."""
    message: str = ""
    """Why, for people."""
    startedAt: Time = ""
    """When that run began."""
    finishedAt: Time = ""
    """When it ended."""
    containerID: str = ""
    """Id of the container, as `type://id`."""


class ContainerState(Model):
    """One of three states; none set means waiting."""

    waiting: ContainerStateWaiting | None = None
    """Not started yet."""
    running: ContainerStateRunning | None = None
    """Running."""
    terminated: ContainerStateTerminated | None = None
    """Ended."""


class ImageVolumeStatus(Model):
    """The image behind a mounted volume."""

    __required__ = ("imageRef",)

    imageRef: str = ""
    """Digest of the image."""


class VolumeStatus(Model):
    """The state of a mounted volume."""

    image: ImageVolumeStatus | None = None
    """Of an image volume: its image."""


class VolumeMountStatus(Model):
    """A mount as it came about."""

    __required__ = ("name", "mountPath")

    name: str = ""
    """Name of the mount."""
    mountPath: str = ""
    """Where it is."""
    readOnly: bool = False
    """Whether it is read-only."""
    recursiveReadOnly: str | None = None
    """Whether it is so recursively: Disabled or Enabled."""
    volumeStatus: VolumeStatus | None = None
    """The state of the volume."""


class LinuxContainerUser(Model):
    """Ids of a container's first process on Linux."""

    __required__ = ("uid", "gid")

    uid: int = field(default_factory=int)
    """User id."""
    gid: int = field(default_factory=int)
    """Primary group id."""
    supplementalGroups: Sequence[int] = ()
    """Further group ids."""


class ContainerUser(Model):
    """Ids of a container's first process."""

    linux: LinuxContainerUser | None = None
    """On Linux."""


class ResourceHealth(Model):
    """Health of one device."""

    __required__ = ("resourceID",)

    resourceID: str = ""
    """Id of the device."""
    health: str = ""
    """Healthy, Unhealthy or Unknown."""
    message: str | None = None
    """More about it, for people."""


class ResourceStatus(Model):
    """Health of the devices of one resource."""

    __required__ = ("name",)

    name: str = ""
    """Name of the resource, or claim:name/request."""
    resources: Annotated[Sequence[ResourceHealth], listed_by("resourceID")] = ()
    """The devices."""


class ContainerStatus(Model):
    """The state of one container."""

    __required__ = ("name", "ready", "restartCount", "image", "imageID")

    name: str = ""
    """Name of the container."""
    state: ContainerState = field(default_factory=ContainerState)
    """Its present state."""
    lastState: ContainerState = field(default_factory=ContainerState)
    """How its former run ended."""
    ready: bool = field(default_factory=bool)
    """Whether it passes its readiness probe."""
    restartCount: Int32 = field(default_factory=int)
    """How often it was restarted."""
    image: str = field(default_factory=str)
    """The image it runs, as the runtime resolved it."""
    imageID: str = field(default_factory=str)
    """Digest of that image."""
    containerID: str = ""
    """Id of the container, as `type://id`."""
    started: bool | None = None
    """Whether it passed its startup probe and its post-start hook."""
    allocatedResources: Mapping[str, Quantity] = {}
    """The resources that the node has allocated."""
    resources: ResourceRequirements | None = None
    """Requests and limits now in force."""
    volumeMounts: Annotated[Sequence[VolumeMountStatus], keyed("mountPath")] = ()
    """Its mounts."""
    user: ContainerUser | None = None
    """Ids of its first process."""
    allocatedResourcesStatus: Annotated[Sequence[ResourceStatus], keyed("name")] = ()
    """Health of its devices."""
    stopSignal: str | None = None
    """The signal that stops it."""


class PodCondition(Model):
    """One aspect of a pod's state."""

    __required__ = ("type", "status")

    type: str = ""
    """The type of the condition, for instance Ready."""
    observedGeneration: int = 0
    """The generation of the pod that was looked at."""
    status: str = ""
    """True, False or Unknown."""
    lastProbeTime: Time = ""
    """When it was last looked at."""
    lastTransitionTime: Time = ""
    """When the status last changed."""
    reason: str = ""
    """Why, as one word."""
    message: str = ""
    """Why, for people."""


class HostIP(Model):
    """An address of the node."""

    __required__ = ("ip",)

    ip: str = ""
    """The address."""


class PodIP(Model):
    """An address of the pod."""

    __required__ = ("ip",)

    ip: str = ""
    """The address."""


class PodResourceClaimStatus(Model):
    """The claim made for one of the pod's resource claims."""

    __required__ = ("name",)

    name: str = ""
    """Name of the entry in the pod's resourceClaims."""
    resourceClaimName: str | None = None
    """Name of the claim; absent if none was needed."""


class ContainerExtendedResourceRequest(Model):
    """A container's extended resource and the request that meets it."""

    __required__ = ("containerName", "resourceName", "requestName")

    containerName: str = ""
    """The container."""
    resourceName: str = ""
    """The extended resource."""
    requestName: str = ""
    """The request in the claim."""


class PodExtendedResourceClaimStatus(Model):
    """The claim made for extended resources."""

    __required__ = ("requestMappings", "resourceClaimName")

    requestMappings: Sequence[ContainerExtendedResourceRequest] = ()
    """Which request meets which resource."""
    resourceClaimName: str = ""
    """Name of the claim."""


class NodeAllocatableResourceClaimStatus(Model):
    """Amounts of the node that a claim takes."""

    __required__ = ("resourceClaimName", "resources")

    resourceClaimName: str = ""
    """Name of the claim."""
    containers: Annotated[Sequence[str], SET] = ()
    """Containers that use it."""
    resources: Mapping[str, Quantity] = {}
    """The amounts."""


class PodStatus(Model):
    """The observed state of a pod."""

    observedGeneration: int = 0
    """The generation of the pod that this status is about."""
    phase: str = ""
    """Pending, Running, Succeeded, Failed or Unknown."""
    conditions: Annotated[Sequence[PodCondition], keyed("type")] = ()
    """Aspects of the pod's state."""
    message: str = ""
    """Why, for people."""
    reason: str = ""
    """Why, as one word."""
    nominatedNodeName: str = ""
    """The node on which room is being made for the pod."""
    hostIP: str = ""
    """Address of the node."""
    hostIPs: Annotated[Sequence[HostIP], merged("ip")] = ()
    """All addresses of the node."""
    podIP: str = ""
    """Address of the pod."""
    podIPs: Annotated[Sequence[PodIP], keyed("ip")] = ()
    """All addresses of the pod, at most one of each family."""
    startTime: Time = ""
    """When the node took up the pod."""
    initContainerStatuses: Sequence[ContainerStatus] = ()
    """The states of the init containers."""
    containerStatuses: Sequence[ContainerStatus] = ()
    """The states of the containers."""
    qosClass: str = ""
    """How the pod is treated when its node runs short: Guaranteed, Burstable or BestEffort."""
    ephemeralContainerStatuses: Sequence[ContainerStatus] = ()
    """The states of the ephemeral containers."""
    resize: str = ""
    """State of a resize, as older nodes tell it."""
    resourceClaimStatuses: Annotated[
        Sequence[PodResourceClaimStatus], keyed("name", retain=True)
    ] = ()
    """Claims made for the pod."""
    extendedResourceClaimStatus: PodExtendedResourceClaimStatus | None = None
    """The claim made for extended resources."""
    allocatedResources: Mapping[str, Quantity] = {}
    """The resources that the node has allocated to the pod as a whole."""
    resources: ResourceRequirements | None = None
    """Requests and limits of the pod now in force."""
    nodeAllocatableResourceClaimStatuses: Sequence[NodeAllocatableResourceClaimStatus] = ()
    """Amounts of the node that claims take."""
