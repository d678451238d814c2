"""PodSpec, and PodTemplateSpec for workloads."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from msgspec import field

from kedge.api.core_v1.pod.affinity import Affinity, Toleration, TopologySpreadConstraint
from kedge.api.core_v1.pod.container import Container, EphemeralContainer, ResourceRequirements
from kedge.api.core_v1.pod.security import PodSecurityContext
from kedge.api.core_v1.references import LocalObjectReference
from kedge.api.core_v1.volume.volume import Volume
from kedge.api.model import ATOMIC, Int32, Model, ObjectMeta, keyed
from kedge.machinery.quantity import Quantity


class HostAlias(Model):
    """Names for an address in the pod's hosts file."""

    __required__ = ("ip",)

    ip: str = ""
    """The address."""
    hostnames: Sequence[str] = ()
    """Its names."""


class PodDNSConfigOption(Model):
    """An option of the resolver."""

    name: str = ""
    """Name of the option."""
    value: str | None = None
    """Value of the option."""


class PodDNSConfig(Model):
    """Settings of the resolver beyond those of the DNS policy."""

    nameservers: Sequence[str] = ()
    """Addresses of name servers, added to the policy's."""
    searches: Sequence[str] = ()
    """Search domains, added to the policy's."""
    options: Sequence[PodDNSConfigOption] = ()
    """Options, merged into the policy's."""


class PodReadinessGate(Model):
    """A further condition that a pod must meet to be ready."""

    __required__ = ("conditionType",)

    conditionType: str = ""
    """Type of the condition in the pod's status."""


class PodSchedulingGate(Model):
    """Something that keeps a pod from being scheduled."""

    __required__ = ("name",)

    name: str = ""
    """Name of the gate."""


class PodOS(Model):
    """The operating system a pod is made for."""

    __required__ = ("name",)

    name: str = ""
    """linux or windows."""


class PodResourceClaim(Model):
    """A resource claim that containers of the pod can refer to."""

    __required__ = ("name",)

    name: str = ""
    """Name by which containers refer to it."""
    resourceClaimName: str | None = None
    """The claim, if it exists already."""
    resourceClaimTemplateName: str | None = None
    """The template from which a claim is made for the pod."""


class PodSchedulingGroup(Model):
    """The group that a pod is scheduled with."""

    podGroupName: str | None = None
    """Name of the pod group in the same namespace."""


class PodSpec(Model):
    """The desired state of a pod."""

    __required__ = ("containers",)

    volumes: Annotated[Sequence[Volume], keyed("name", retain=True)] = ()
    """Volumes that containers can mount."""
    initContainers: Annotated[Sequence[Container], keyed("name")] = ()
    """Containers that run in turn, each to its end, before the others start."""
    containers: Annotated[Sequence[Container], keyed("name")] = ()
    """The containers that make up the pod; at least one."""
    ephemeralContainers: Annotated[Sequence[EphemeralContainer], keyed("name")] = ()
    """Containers added to a running pod, for looking into it. Not set on creation."""
    restartPolicy: str = ""
    """When containers restart: Always, OnFailure or Never. Default Always."""
    terminationGracePeriodSeconds: int | None = None
    """Time between the request to stop and the kill. Default 30."""
    activeDeadlineSeconds: int | None = None
    """Time after its start at which the pod is failed and stopped."""
    dnsPolicy: str = ""
    """The DNS policy: ClusterFirst, ClusterFirstWithHostNet, Default or None."""
    nodeSelector: Annotated[Mapping[str, str], ATOMIC] = {}
    """Labels that the node must have."""
    serviceAccountName: str = ""
    """The service account that the pod acts as."""
    serviceAccount: str = ""
    """Former name of serviceAccountName."""
    automountServiceAccountToken: bool | None = None
    """Whether a token of the service account is mounted."""
    nodeName: str = ""
    """The node that the pod is placed on. Set by the scheduler."""
    hostNetwork: bool = False
    """Whether the pod uses the node's network."""
    hostPID: bool = False
    """Whether the pod sees the node's processes."""
    hostIPC: bool = False
    """Whether the pod uses the node's IPC."""
    shareProcessNamespace: bool | None = None
    """Whether the containers see each other's processes."""
    securityContext: PodSecurityContext | None = None
    """Security settings for all containers."""
    imagePullSecrets: Annotated[Sequence[LocalObjectReference], keyed("name")] = ()
    """Secrets with credentials for registries."""
    hostname: str = ""
    """Name of the pod's host, if not the pod's name."""
    subdomain: str = ""
    """Makes the full name hostname.subdomain.namespace.svc.cluster-domain."""
    affinity: Affinity | None = None
    """The required and preferred affinities to nodes and other pods."""
    schedulerName: str = ""
    """The scheduler that places the pod. Default default-scheduler."""
    tolerations: Sequence[Toleration] = ()
    """Taints that do not keep the pod away."""
    hostAliases: Annotated[Sequence[HostAlias], keyed("ip")] = ()
    """Further lines of the pod's hosts file."""
    priorityClassName: str = ""
    """The class that sets the pod's priority."""
    priority: Int32 | None = None
    """How important the pod is; set from the class."""
    dnsConfig: PodDNSConfig | None = None
    """Settings of the resolver."""
    readinessGates: Sequence[PodReadinessGate] = ()
    """Further conditions for being ready."""
    runtimeClassName: str | None = None
    """The runtime class to run the pod with."""
    enableServiceLinks: bool | None = None
    """Whether services of the namespace appear as variables. Default true."""
    preemptionPolicy: str | None = None
    """Whether pods of lower priority may make room: PreemptLowerPriority or Never."""
    overhead: Mapping[str, Quantity] = {}
    """The overhead of the pod beyond its containers. Set from the runtime class."""
    topologySpreadConstraints: Annotated[
        Sequence[TopologySpreadConstraint], keyed("topologyKey", "whenUnsatisfiable")
    ] = ()
    """How evenly pods like this one are to be spread."""
    setHostnameAsFQDN: bool | None = None
    """Whether the host name is the full one. Default false."""
    os: PodOS | None = None
    """The operating system that the pod is made for."""
    hostUsers: bool | None = None
    """Whether the pod uses the node's user ids. Default true."""
    schedulingGates: Annotated[Sequence[PodSchedulingGate], keyed("name")] = ()
    """The gates that keep the pod from being scheduled. Only removals are allowed later."""
    resourceClaims: Annotated[Sequence[PodResourceClaim], keyed("name", retain=True)] = ()
    """Resource claims that must be reserved before the pod starts."""
    resources: ResourceRequirements | None = None
    """Requests and limits of the pod as a whole."""
    hostnameOverride: str | None = None
    """The host name as the pod itself sees it, winning over everything else."""
    schedulingGroup: PodSchedulingGroup | None = None
    """The group that the pod is scheduled with."""


class PodTemplateSpec(Model):
    """The template of a workload's pods."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    """Labels and annotations of the pods."""
    spec: PodSpec = field(default_factory=PodSpec)
    """The desired state of the pods."""


def all_containers(spec: PodSpec) -> Iterator[tuple[str, Container]]:
    """Every container of a pod and where it stands in the spec, init containers first."""
    for i, container in enumerate(spec.initContainers):
        yield f"initContainers[{i}]", container
    for i, container in enumerate(spec.containers):
        yield f"containers[{i}]", container
    for i, container in enumerate(spec.ephemeralContainers):
        yield f"ephemeralContainers[{i}]", container
