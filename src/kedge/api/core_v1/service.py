"""Service: one lasting name and address for a changing set of pods.

Addresses and node ports are given out by the server; what is asked for here stays as given.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from kedge.api.core_v1.service_types import (
    ClientIPConfig,
    LoadBalancerStatus,
    Service,
    ServicePort,
    ServiceSpec,
    SessionAffinityConfig,
)
from kedge.api.core_v1.service_validation import (
    TOPOLOGY_HINTS,
    TOPOLOGY_MODE,
    is_external,
    is_headless,
    needs_health_check,
    validate,
    validate_status,
    validate_update,
)
from kedge.api.label_selector import shown_labels
from kedge.api.presentation import Column, Presentation, age_column, name_column
from kedge.api.resource import STATUS, Resource, Subresource
from kedge.api.strategy import Strategy
from kedge.machinery import names

THREE_HOURS = 10800
WIDEST_BALANCER = 16
_INTERNAL = ("ClusterIP", "NodePort", "LoadBalancer")
_WITH_NODE_PORTS = ("NodePort", "LoadBalancer")


def default(obj: Service) -> Service:
    spec = obj.spec
    spec = replace(
        spec,
        type=spec.type or "ClusterIP",
        sessionAffinity=spec.sessionAffinity or "None",
        ports=[_default_port(port) for port in spec.ports] or (),
    )
    spec = replace(spec, sessionAffinityConfig=_affinity(spec))
    if is_external(spec) and not spec.externalTrafficPolicy:
        spec = replace(spec, externalTrafficPolicy="Cluster")
    if spec.internalTrafficPolicy is None and spec.type in _INTERNAL:
        spec = replace(spec, internalTrafficPolicy="Cluster")
    if spec.type == "LoadBalancer" and spec.allocateLoadBalancerNodePorts is None:
        spec = replace(spec, allocateLoadBalancerNodePorts=True)
    return _default_ingress(replace(obj, spec=spec))


def _default_port(port: ServicePort) -> ServicePort:
    target = port.targetPort or port.port
    return replace(port, protocol=port.protocol or "TCP", targetPort=target)


def _affinity(spec: ServiceSpec) -> SessionAffinityConfig | None:
    config = spec.sessionAffinityConfig
    if spec.sessionAffinity == "None":
        return None
    if spec.sessionAffinity != "ClientIP":
        return config
    if config and config.clientIP and config.clientIP.timeoutSeconds is not None:
        return config
    return SessionAffinityConfig(clientIP=ClientIPConfig(timeoutSeconds=THREE_HOURS))


def _default_ingress(obj: Service) -> Service:
    places = obj.status.loadBalancer.ingress
    if obj.spec.type != "LoadBalancer" or all(p.ipMode or not p.ip for p in places):
        return obj
    moded = [replace(p, ipMode=p.ipMode or "VIP") if p.ip else p for p in places]
    balancer = LoadBalancerStatus(ingress=moded)
    return replace(obj, status=replace(obj.status, loadBalancer=balancer))


def prepare_for_create(obj: Service) -> Service:
    spec = obj.spec
    if spec.clusterIP and not spec.clusterIPs:
        spec = replace(spec, clusterIPs=[spec.clusterIP])
    return replace(obj, spec=_families(spec))


def _families(spec: ServiceSpec) -> ServiceSpec:
    """The families of a cluster that gives out IPv4 addresses only."""
    if spec.type == "ExternalName":
        return spec
    anywhere = is_headless(spec) and not spec.selector
    policy = spec.ipFamilyPolicy or ("RequireDualStack" if anywhere else "SingleStack")
    families = [*spec.ipFamilies, *map(_family, spec.clusterIPs[len(spec.ipFamilies) :])]
    families = families or ["IPv4"]
    if anywhere and policy != "SingleStack" and len(families) == 1:
        # Upstream sets both families if no address has to be allocated.
        families.append("IPv6" if families[0] == "IPv4" else "IPv4")
    return replace(spec, ipFamilyPolicy=policy, ipFamilies=families)


def _family(address: str) -> str:
    return "IPv6" if ":" in address else "IPv4"


def prepare_for_update(new: Service, old: Service) -> Service:
    """Keep what the server gave out, unless the writer changes it or the type has no use for it."""
    spec = _sync_addresses(_keep_given(new.spec, old.spec), old.spec)
    if spec.type != "ExternalName" and spec.ipFamilyPolicy is None:
        spec = replace(spec, ipFamilyPolicy=old.spec.ipFamilyPolicy)
    spec = _drop_unused(_families(_single_stack(spec, old.spec)), old.spec)
    if spec.type == "LoadBalancer" or not new.status.loadBalancer.ingress:
        return replace(new, spec=spec)
    status = replace(new.status, loadBalancer=LoadBalancerStatus())
    return replace(new, spec=spec, status=status)


def _keep_given(new: ServiceSpec, old: ServiceSpec) -> ServiceSpec:
    """Keep the allocated fields that an unchanged manifest does not contain."""
    if new.type in _INTERNAL and old.type in _INTERNAL:
        new = replace(
            new,
            clusterIP=new.clusterIP or old.clusterIP,
            clusterIPs=new.clusterIPs or old.clusterIPs,
        )
    if needs_health_check(new) and needs_health_check(old) and not new.healthCheckNodePort:
        new = replace(new, healthCheckNodePort=old.healthCheckNodePort)
    if new.type not in _WITH_NODE_PORTS or old.type not in _WITH_NODE_PORTS:
        return new
    given = {port.name: port.nodePort for port in old.ports}
    free = set(given.values()) - {port.nodePort for port in new.ports}
    ports = [
        replace(port, nodePort=given[port.name])
        if not port.nodePort and given.get(port.name) in free
        else port
        for port in new.ports
    ]
    return replace(new, ports=ports)


def _sync_addresses(new: ServiceSpec, old: ServiceSpec) -> ServiceSpec:
    """Let clusterIPs follow clusterIP when the writer changed only the latter."""
    if new.clusterIP == old.clusterIP or list(new.clusterIPs) != list(old.clusterIPs):
        return new
    return replace(new, clusterIPs=[new.clusterIP] if new.clusterIP else ())


def _single_stack(new: ServiceSpec, old: ServiceSpec) -> ServiceSpec:
    """Drop the second address and family if the policy says so and the lists are unchanged."""
    if new.ipFamilyPolicy != "SingleStack":
        return new
    if list(new.clusterIPs) == list(old.clusterIPs):
        new = replace(new, clusterIPs=new.clusterIPs[:1])
    if list(new.ipFamilies) == list(old.ipFamilies):
        new = replace(new, ipFamilies=new.ipFamilies[:1])
    return new


def _drop_unused(new: ServiceSpec, old: ServiceSpec) -> ServiceSpec:
    """Empty what a new type has no use for, where the writer only repeats the old value."""
    unused: list[str] = []
    if new.type == "ExternalName" and old.type in _INTERNAL:
        unused += ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"]
    if needs_health_check(old) and not needs_health_check(new):
        unused.append("healthCheckNodePort")
    if old.type == "LoadBalancer" != new.type:
        unused += ["allocateLoadBalancerNodePorts", "loadBalancerClass"]
    if is_external(old) and not is_external(new):
        unused.append("externalTrafficPolicy")
    same = [field for field in unused if getattr(new, field) == getattr(old, field)]
    # Replacing by default, not by hand: each field knows what it is when unset.
    new = replace(new, **{field: getattr(_UNSET, field) for field in same})
    if old.type in _WITH_NODE_PORTS and new.type not in _WITH_NODE_PORTS and _ports_agree(new, old):
        new = replace(new, ports=[replace(port, nodePort=0) for port in new.ports])
    return new


_UNSET = ServiceSpec()


def _ports_agree(new: ServiceSpec, old: ServiceSpec) -> bool:
    return {port.nodePort for port in new.ports} == {port.nodePort for port in old.ports}


def warn(obj: Service) -> Iterable[str]:
    spec = obj.spec
    if TOPOLOGY_HINTS in obj.metadata.annotations:
        yield f"annotation {TOPOLOGY_HINTS} is deprecated, please use {TOPOLOGY_MODE} instead"
    headless = spec.type == "ClusterIP" and spec.clusterIP == "None"
    if headless and spec.loadBalancerIP:
        yield "spec.loadBalancerIP is ignored for headless services"
    if headless and spec.externalIPs:
        yield "spec.externalIPs is ignored for headless services"
    if headless and spec.sessionAffinity != "None":
        yield "spec.SessionAffinity is ignored for headless services"
    if spec.externalIPs and not headless and spec.type != "ExternalName":
        yield "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
    if spec.externalIPs and spec.type == "ExternalName":
        yield 'spec.externalIPs is ignored when spec.type is "ExternalName"'
    if spec.externalName and spec.type != "ExternalName":
        yield 'spec.externalName is ignored when spec.type is not "ExternalName"'
    if spec.trafficDistribution == "PreferClose":
        yield 'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'


def external_cell(obj: Service) -> str:
    """Where the service is to be had from outside."""
    if obj.spec.type == "ExternalName":
        return obj.spec.externalName
    if obj.spec.type != "LoadBalancer":
        return ",".join(obj.spec.externalIPs) or "<none>"
    places = sorted({p.ip or p.hostname for p in obj.status.loadBalancer.ingress} - {""})
    balancer = ",".join(places)
    if len(balancer) > WIDEST_BALANCER:
        balancer = balancer[: WIDEST_BALANCER - 3] + "..."
    return ",".join([*filter(None, [balancer]), *obj.spec.externalIPs]) or "<pending>"


def ports_cell(ports: Sequence[ServicePort]) -> str:
    shown = (
        f"{p.port}:{p.nodePort}/{p.protocol}" if p.nodePort else f"{p.port}/{p.protocol}"
        for p in ports
    )
    return ",".join(shown) or "<none>"


RESOURCE: Resource[Service] = Resource(
    type=Service,
    plural="services",
    registry="services/specs",
    subresources=[
        Subresource(
            "proxy",
            verbs=("create", "delete", "get", "patch", "update"),
            kind="ServiceProxyOptions",
        ),
        STATUS,
    ],
    strategy=Strategy(
        counts_generation=False,
        returns_deleted_object=True,
        allows_create_on_update=True,
        check_name=names.dns_label,
        default=default,
        prepare_for_create=prepare_for_create,
        prepare_for_update=prepare_for_update,
        validate=validate,
        validate_update=validate_update,
        validate_status=validate_status,
        warnings=warn,
    ),
    presentation=Presentation(
        short_names=["svc"],
        categories=["all"],
        fields={
            "spec.clusterIP": lambda obj: obj.spec.clusterIP,
            "spec.type": lambda obj: obj.spec.type,
        },
        columns=[
            name_column(),
            Column(
                name="Type",
                cell=lambda obj: obj.spec.type,
                description="How the service is reached.",
            ),
            Column(
                name="Cluster-IP",
                cell=lambda obj: next(iter(obj.spec.clusterIPs), "<none>"),
                description="The address inside the cluster.",
            ),
            Column(
                name="External-IP",
                cell=external_cell,
                description="Where the service is to be had from outside.",
            ),
            Column(
                name="Port(s)",
                cell=lambda obj: ports_cell(obj.spec.ports),
                description="Ports, with the port on the nodes if there is one.",
            ),
            age_column(),
            Column(
                name="Selector",
                cell=lambda obj: shown_labels(obj.spec.selector),
                priority=1,
                description="Labels of the pods behind the service.",
            ),
        ],
    ),
)
