"""The fields of Services, EndpointSlices, Ingresses and Secrets that the gateway needs."""

from collections.abc import Mapping

import msgspec

from kedge.client.informer import Key


class GatewayObject(msgspec.Struct, frozen=True, rename="camel"):
    """The base of all types here; absent fields have their defaults."""


class GatewayMeta(GatewayObject, frozen=True):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    creation_timestamp: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


# Services.


class ServicePortInfo(GatewayObject, frozen=True):
    port: int = 0
    name: str = ""
    protocol: str = "TCP"
    app_protocol: str = ""


class ServiceSpecInfo(GatewayObject, frozen=True):
    type: str = "ClusterIP"
    ports: tuple[ServicePortInfo, ...] = ()


class ServiceInfo(GatewayObject, frozen=True):
    metadata: GatewayMeta = GatewayMeta()
    spec: ServiceSpecInfo = ServiceSpecInfo()


# EndpointSlices.


class SlicePort(GatewayObject, frozen=True):
    port: int | None = None
    name: str | None = None
    protocol: str | None = "TCP"


class SliceConditions(GatewayObject, frozen=True):
    """Absent conditions mean ready and serving."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class SliceEndpoint(GatewayObject, frozen=True):
    addresses: tuple[str, ...] = ()
    conditions: SliceConditions = SliceConditions()


class SliceInfo(GatewayObject, frozen=True):
    metadata: GatewayMeta = GatewayMeta()
    address_type: str = "IPv4"
    ports: tuple[SlicePort, ...] | None = ()
    endpoints: tuple[SliceEndpoint, ...] | None = ()


# Ingresses.


class BackendPort(GatewayObject, frozen=True):
    number: int = 0
    name: str = ""


class BackendService(GatewayObject, frozen=True):
    name: str = ""
    port: BackendPort = BackendPort()


class IngressBackend(GatewayObject, frozen=True):
    service: BackendService | None = None
    """None if the backend is some other object, which the gateway does not support."""


class IngressPath(GatewayObject, frozen=True):
    path: str = ""
    path_type: str = ""
    backend: IngressBackend = IngressBackend()


class IngressPaths(GatewayObject, frozen=True):
    paths: tuple[IngressPath, ...] = ()


class IngressRule(GatewayObject, frozen=True):
    host: str = ""
    http: IngressPaths | None = None


class IngressTls(GatewayObject, frozen=True):
    hosts: tuple[str, ...] = ()
    secret_name: str = ""


class IngressSpecInfo(GatewayObject, frozen=True):
    ingress_class_name: str = ""
    default_backend: IngressBackend | None = None
    rules: tuple[IngressRule, ...] = ()
    tls: tuple[IngressTls, ...] = ()


class LoadBalancerPort(GatewayObject, frozen=True):
    port: int = 0
    protocol: str = "TCP"


class LoadBalancerAddress(GatewayObject, frozen=True):
    ip: str = ""
    hostname: str = ""
    ports: tuple[LoadBalancerPort, ...] = ()


class LoadBalancerInfo(GatewayObject, frozen=True):
    ingress: tuple[LoadBalancerAddress, ...] = ()


class IngressStatusInfo(GatewayObject, frozen=True):
    load_balancer: LoadBalancerInfo = LoadBalancerInfo()


class IngressInfo(GatewayObject, frozen=True):
    metadata: GatewayMeta = GatewayMeta()
    spec: IngressSpecInfo = IngressSpecInfo()
    status: IngressStatusInfo = IngressStatusInfo()


class IngressClassSpecInfo(GatewayObject, frozen=True):
    controller: str = ""


class IngressClassInfo(GatewayObject, frozen=True):
    metadata: GatewayMeta = GatewayMeta()
    spec: IngressClassSpecInfo = IngressClassSpecInfo()


class SecretInfo(GatewayObject, frozen=True):
    metadata: GatewayMeta = GatewayMeta()
    data: Mapping[str, str] = {}
    """In base64."""
