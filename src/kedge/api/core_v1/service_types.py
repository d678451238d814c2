"""The fields of a Service."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import field

from kedge.api.model import (
    ATOMIC,
    Condition,
    Int32,
    IntOrString,
    Model,
    Object,
    defaults_to,
    keyed,
)


class ServicePort(Model):
    """One port of a service."""

    __required__ = ("port",)

    appProtocol: str | None = None
    """The application protocol of the port, for instance kubernetes.io/h2c."""
    name: str = ""
    """Name of the port; may be left out if there is but one."""
    nodePort: Int32 = 0
    """The port on every node, for services of type NodePort and LoadBalancer."""
    port: Int32 = 0
    """The port at the service's own address."""
    protocol: Annotated[str, defaults_to("TCP")] = ""
    """TCP, UDP or SCTP. Default TCP."""
    targetPort: IntOrString = 0
    """Number or name of the port in the pods. Default the same as port."""


class ClientIPConfig(Model):
    """How sessions are recognised by the address of the client."""

    timeoutSeconds: Int32 | None = None
    """How long a client stays with its pod. Default three hours."""


class SessionAffinityConfig(Model):
    """How sessions are recognised."""

    clientIP: ClientIPConfig | None = None
    """For affinity ClientIP."""


class ServiceSpec(Model):
    """How the service is to be reached, and whom it leads to."""

    allocateLoadBalancerNodePorts: bool | None = None
    """Whether a LoadBalancer service gets node ports. Default true."""
    clusterIP: str = ""
    """The address inside the cluster; None makes the service headless."""
    clusterIPs: Sequence[str] = ()
    """The addresses inside the cluster, one per family; the first is clusterIP."""
    externalIPs: Sequence[str] = ()
    """Further addresses at which nodes accept traffic for the service."""
    externalName: str = ""
    """The name that DNS answers with, for type ExternalName."""
    externalTrafficPolicy: str = ""
    """Whether traffic from outside may go to any node (Cluster) or stays on its node (Local)."""
    healthCheckNodePort: Int32 = 0
    """Where load balancers ask a node whether it has pods of the service."""
    internalTrafficPolicy: str | None = None
    """Whether traffic from inside may go to any node (Cluster) or stays on its node (Local)."""
    ipFamilies: Sequence[str] = ()
    """IPv4, IPv6 or both, in order of preference."""
    ipFamilyPolicy: str | None = None
    """SingleStack, PreferDualStack or RequireDualStack."""
    loadBalancerClass: str | None = None
    """Which load balancer is to serve a LoadBalancer service."""
    loadBalancerIP: str = ""
    """The address wanted from the load balancer, where it heeds that."""
    loadBalancerSourceRanges: Sequence[str] = ()
    """Networks from which the load balancer lets clients in."""
    ports: Annotated[Sequence[ServicePort], keyed("port", "protocol")] = ()
    """The ports of the service."""
    publishNotReadyAddresses: bool = False
    """Whether pods are listed before they are ready."""
    selector: Annotated[Mapping[str, str], ATOMIC] = {}
    """Labels of the pods that the service leads to; without it others name the endpoints."""
    sessionAffinity: str = ""
    """None, or ClientIP to keep each client with one pod."""
    sessionAffinityConfig: SessionAffinityConfig | None = None
    """How sessions are recognised."""
    trafficDistribution: str | None = None
    """A preference for near endpoints: PreferSameZone, PreferSameNode or PreferClose."""
    type: str = ""
    """ClusterIP, NodePort, LoadBalancer or ExternalName. Default ClusterIP."""


class PortStatus(Model):
    """The state of one port of the load balancer."""

    __required__ = ("port", "protocol")

    error: str | None = None
    """Why the port does not work, if so."""
    port: Int32 = 0
    """Number of the port."""
    protocol: str = ""
    """TCP, UDP or SCTP."""


class LoadBalancerIngress(Model):
    """One place where the load balancer takes traffic."""

    hostname: str = ""
    """The place as a name."""
    ip: str = ""
    """The place as an address."""
    ipMode: str | None = None
    """VIP if packets keep this address as their destination, Proxy if not."""
    ports: Sequence[PortStatus] = ()
    """The state of each port."""


class LoadBalancerStatus(Model):
    """Where the load balancer takes traffic."""

    ingress: Sequence[LoadBalancerIngress] = ()
    """The places."""


class ServiceStatus(Model):
    """The observed state of the service."""

    conditions: Annotated[Sequence[Condition], keyed("type")] = ()
    """Aspects of its state."""
    loadBalancer: LoadBalancerStatus = field(default_factory=LoadBalancerStatus)
    """The state of the load balancer, if there is one."""


class Service(Object):
    """One lasting name and address for a changing set of pods."""

    spec: ServiceSpec = field(default_factory=ServiceSpec)
    """The desired state."""
    status: ServiceStatus = field(default_factory=ServiceStatus)
    """The observed state."""
