"""The fields of a Node."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

from msgspec import field

from kedge.api.model import (
    MERGED_SET,
    Int32,
    Model,
    Object,
    Time,
    keyed,
)
from kedge.machinery.quantity import Quantity

POD_LEVEL_RESIZE: Final = "InPlacePodLevelResourcesVerticalScaling"
"""Resizes the resources of a pod as a whole."""
INIT_CONTAINER_RESIZE: Final = "InPlacePodVerticalScalingInitContainers"
"""Resizes init containers that are no sidecars."""
RESTART_ALL_CONTAINERS: Final = "RestartAllContainersOnContainerExits"
"""Restarts all containers of a pod if a rule of one of them says so."""
HOST_NETWORK_OF_USERS: Final = "UserNamespacesHostNetworkSupport"
"""Runs pods with users of their own in the network of the host, which kedge's nodes do not."""
DECLARED_FEATURES: Final = (
    "ExtendWebSocketsToKubelet",
    POD_LEVEL_RESIZE,
    INIT_CONTAINER_RESIZE,
    RESTART_ALL_CONTAINERS,
)
"""All features that kedge's nodes have, sorted as the status must have them."""


SIMULATION_PREFIX: Final = "simulation.kedge.dev/"
"""The beginning of annotations of simulated nodes and pods (kedge.api.core_v1.simulation)."""
SIMULATED: Final = "simulation.kedge.dev/node"
"""The label by which a node is simulated, and the key of the taint that keeps other pods away."""
SIMULATED_VALUE: Final = "true"


def is_simulated(labels: Mapping[str, str]) -> bool:
    """Return whether a node with these labels is simulated."""
    return labels.get(SIMULATED) == SIMULATED_VALUE


class ConfigMapNodeConfigSource(Model):
    """A config map with settings for a kubelet; no longer used."""

    __required__ = ("namespace", "name", "kubeletConfigKey")

    kubeletConfigKey: str = ""
    """The key with the settings."""
    name: str = ""
    """Name of the config map."""
    namespace: str = ""
    """Namespace of the config map."""
    resourceVersion: str = ""
    """The version meant; in status only."""
    uid: str = ""
    """Uid of the config map; in status only."""


class NodeConfigSource(Model):
    """Where a kubelet finds its settings; no longer used."""

    configMap: ConfigMapNodeConfigSource | None = None
    """A config map."""


class Taint(Model):
    """Keeps pods off the node unless they tolerate it."""

    __required__ = ("key", "effect")

    effect: str = ""
    """NoSchedule, PreferNoSchedule or NoExecute."""
    key: str = ""
    """A taint that pods must tolerate."""
    timeAdded: Time = ""
    """When the taint was put on."""
    value: str = ""
    """A value to go with the key."""


class NodeSpec(Model):
    """How the node is to be used."""

    configSource: NodeConfigSource | None = None
    """No longer used."""
    externalID: str = ""
    """No longer used."""
    podCIDR: str = ""
    """The network from which pods of this node get their addresses."""
    podCIDRs: Annotated[Sequence[str], MERGED_SET] = ()
    """The same for each family; the first is podCIDR."""
    providerID: str = ""
    """The ID of the machine at its cloud provider."""
    taints: Sequence[Taint] = ()
    """The taints that keep pods away."""
    unschedulable: bool = False
    """Whether new pods shall go elsewhere."""


class NodeAddress(Model):
    """One way to reach the node."""

    __required__ = ("type", "address")

    address: str = ""
    """The address or name."""
    type: str = ""
    """Hostname, InternalIP, ExternalIP, InternalDNS or ExternalDNS."""


class NodeCondition(Model):
    """One aspect of the node's health."""

    __required__ = ("type", "status")

    lastHeartbeatTime: Time = ""
    """When the node last reported it."""
    lastTransitionTime: Time = ""
    """When the status last changed."""
    message: str = ""
    """Why, for people."""
    reason: str = ""
    """Why, as one word."""
    status: str = ""
    """True, False or Unknown."""
    type: str = ""
    """The type of the condition, for instance Ready or MemoryPressure."""


class NodeConfigStatus(Model):
    """Which settings a kubelet uses; no longer used."""

    active: NodeConfigSource | None = None
    """The configuration in use."""
    assigned: NodeConfigSource | None = None
    """The configuration to use next."""
    error: str = ""
    """The error of the assigned configuration."""
    lastKnownGood: NodeConfigSource | None = None
    """The configuration to fall back to."""


class DaemonEndpoint(Model):
    """A port on which a daemon listens."""

    __required__ = ("Port",)

    Port: Int32 = field(default_factory=int)
    """Number of the port."""


class NodeDaemonEndpoints(Model):
    """The daemons of the node."""

    kubeletEndpoint: DaemonEndpoint = field(default_factory=DaemonEndpoint)
    """The node agent, asked for logs and exec."""


class NodeFeatures(Model):
    """The features of the node's container runtime."""

    supplementalGroupsPolicy: bool | None = None
    """Whether it heeds supplementalGroupsPolicy and reports users of containers."""


class ContainerImage(Model):
    """An image that the node has."""

    names: Sequence[str] = ()
    """The names it is known by."""
    sizeBytes: int = 0
    """Its size."""


class NodeSwapStatus(Model):
    """The node's swap space."""

    capacity: int | None = None
    """Its size in bytes."""


class NodeSystemInfo(Model):
    """The hardware and software of the node."""

    __required__ = (
        "machineID",
        "systemUUID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeletVersion",
        "kubeProxyVersion",
        "operatingSystem",
        "architecture",
    )

    # Clients insist on all ten, so they are written even when empty.
    machineID: str = field(default_factory=str)
    """Identifies the installation of the operating system."""
    systemUUID: str = field(default_factory=str)
    """Identifies the machine."""
    bootID: str = field(default_factory=str)
    """Changes with every boot."""
    kernelVersion: str = field(default_factory=str)
    """As uname -r prints it."""
    osImage: str = field(default_factory=str)
    """The operating system's name for people."""
    containerRuntimeVersion: str = field(default_factory=str)
    """Name and version of what runs containers, for instance containerd://2.0."""
    kubeletVersion: str = field(default_factory=str)
    """Version of the node agent."""
    kubeProxyVersion: str = field(default_factory=str)
    """No longer set by most nodes."""
    operatingSystem: str = field(default_factory=str)
    """linux or windows."""
    architecture: str = field(default_factory=str)
    """For instance amd64."""
    swap: NodeSwapStatus | None = None
    """The swap space."""


class NodeRuntimeHandlerFeatures(Model):
    """The features of one handler of the runtime."""

    recursiveReadOnlyMounts: bool | None = None
    """Whether it can mount read-only all the way down."""
    userNamespaces: bool | None = None
    """Whether it can give pods users of their own."""


class NodeRuntimeHandler(Model):
    """One way in which the node can run containers."""

    features: NodeRuntimeHandlerFeatures | None = None
    """Its features."""
    name: str = ""
    """Name of the handler; empty for the usual one."""


class AttachedVolume(Model):
    """A volume attached to the node."""

    __required__ = ("name", "devicePath")

    devicePath: str = ""
    """Where the device is."""
    name: str = ""
    """Name of the volume."""


class NodeStatus(Model):
    """The observed state of the node."""

    addresses: Annotated[Sequence[NodeAddress], keyed("type")] = ()
    """Where it is to be reached."""
    allocatable: Mapping[str, Quantity] = {}
    """How much pods may use. Default all of capacity."""
    capacity: Mapping[str, Quantity] = {}
    """How much there is."""
    conditions: Annotated[Sequence[NodeCondition], keyed("type")] = ()
    """How it is doing."""
    config: NodeConfigStatus | None = None
    """No longer used."""
    daemonEndpoints: NodeDaemonEndpoints = field(default_factory=NodeDaemonEndpoints)
    """Ports of its daemons."""
    declaredFeatures: Sequence[str] = ()
    """Features that the node offers, sorted."""
    features: NodeFeatures | None = None
    """The features of its container runtime."""
    images: Sequence[ContainerImage] = ()
    """Images that it has."""
    nodeInfo: NodeSystemInfo = field(default_factory=NodeSystemInfo)
    """Its hardware and software."""
    phase: str = ""
    """No longer set."""
    runtimeHandlers: Sequence[NodeRuntimeHandler] = ()
    """Ways in which it can run containers."""
    volumesAttached: Sequence[AttachedVolume] = ()
    """Volumes attached to it."""
    volumesInUse: Sequence[str] = ()
    """Attached volumes that it has mounted."""


class Node(Object):
    """A machine that runs pods."""

    spec: NodeSpec = field(default_factory=NodeSpec)
    """How it is to be used."""
    status: NodeStatus = field(default_factory=NodeStatus)
    """The observed state."""
