"""Validation of Services and of their updates."""

import ipaddress
from collections.abc import Iterator, Sequence

from kedge.api import rules
from kedge.api.core_v1.endpoints import unreachable
from kedge.api.core_v1.service_types import (
    LoadBalancerIngress,
    Service,
    ServicePort,
    ServiceSpec,
    SessionAffinityConfig,
)
from kedge.api.metadata import validate_labels
from kedge.machinery import names
from kedge.machinery.errors import FieldError

TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
POLICIES = ("Cluster", "Local")
FAMILIES = ("IPv4", "IPv6")
FAMILY_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")
DISTRIBUTIONS = ("PreferClose", "PreferSameZone", "PreferSameNode")
LONGEST_AFFINITY = 86400
SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
TOPOLOGY_MODE = "service.kubernetes.io/topology-mode"
TOPOLOGY_HINTS = "service.kubernetes.io/topology-aware-hints"

_ONLY_BALANCED = "may only be used when `type` is 'LoadBalancer'"
_SET_ONCE = "may not change once set"


def is_headless(spec: ServiceSpec) -> bool:
    """Whether the service has a name but no address of its own."""
    return len(spec.clusterIPs) == 1 and spec.clusterIPs[0] == "None"


def is_external(spec: ServiceSpec) -> bool:
    """Whether traffic may come from outside the cluster."""
    balanced = spec.type in ("LoadBalancer", "NodePort")
    return balanced or (spec.type == "ClusterIP" and bool(spec.externalIPs))


def needs_health_check(spec: ServiceSpec) -> bool:
    """Whether load balancers must ask nodes where the pods are."""
    return spec.type == "LoadBalancer" and spec.externalTrafficPolicy == "Local"


def validate(obj: Service) -> Iterator[FieldError]:
    spec = obj.spec
    yield from _topology(obj)
    if not spec.ports and not is_headless(spec) and spec.type != "ExternalName":
        yield FieldError.required("spec.ports")
    yield from _type_and_address(spec)
    yield from _ports(spec)
    yield from validate_labels(spec.selector, "spec.selector")
    yield from _affinity(spec)
    if spec.type != "ExternalName":
        yield from cluster_ip_errors(spec)
    for i, ip in enumerate(spec.externalIPs):
        yield from rules.problems(
            f"spec.externalIPs[{i}]", ip, names.ip_address(ip) or unreachable(ip)
        )
    yield from rules.one_of("spec.type", spec.type, TYPES)
    yield from _port_clashes(spec)
    yield from _source_ranges(obj)
    yield from _load_balancer(spec)
    yield from _external_traffic(spec)
    if spec.internalTrafficPolicy is None and spec.type in TYPES and spec.type != "ExternalName":
        yield FieldError.required("spec.internalTrafficPolicy")
    yield from rules.none_or_one_of(
        "spec.internalTrafficPolicy", spec.internalTrafficPolicy, POLICIES
    )
    yield from rules.none_or_one_of(
        "spec.trafficDistribution", spec.trafficDistribution, DISTRIBUTIONS
    )


def _topology(obj: Service) -> Iterator[FieldError]:
    mode = obj.metadata.annotations.get(TOPOLOGY_MODE)
    hints = obj.metadata.annotations.get(TOPOLOGY_HINTS)
    if mode is not None and hints is not None and mode != hints:
        why = f"must match annotations[{TOPOLOGY_HINTS}] when both are specified"
        yield FieldError.invalid(f"metadata.annotations[{TOPOLOGY_MODE}]", mode, why)


def _type_and_address(spec: ServiceSpec) -> Iterator[FieldError]:
    if spec.type in ("LoadBalancer", "NodePort") and is_headless(spec):
        why = f"may not be set to 'None' for {spec.type} services"
        yield FieldError.invalid("spec.clusterIPs[0]", spec.clusterIPs[0], why)
    if spec.type != "ExternalName":
        return
    for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if getattr(spec, field):
            why = "may not be set for ExternalName services"
            yield FieldError.forbidden(f"spec.{field}", why)
    if not (name := spec.externalName.removesuffix(".")):
        yield FieldError.required("spec.externalName")
    else:
        yield from rules.problems("spec.externalName", name, names.dns_subdomain(name))


def _ports(spec: ServiceSpec) -> Iterator[FieldError]:
    seen: set[str] = set()
    for i, port in enumerate(spec.ports):
        path = f"spec.ports[{i}]"
        if not port.name:
            if len(spec.ports) > 1:
                yield FieldError.required(f"{path}.name")
        else:
            yield from rules.problems(f"{path}.name", port.name, names.dns_label(port.name))
            if port.name in seen:
                yield FieldError.duplicate(f"{path}.name", port.name)
            seen.add(port.name)
        yield from _port(port, path)


def _port(port: ServicePort, path: str) -> Iterator[FieldError]:
    yield from rules.problems(f"{path}.port", port.port, names.port_number(port.port))
    yield from rules.one_of(f"{path}.protocol", port.protocol, rules.PROTOCOLS)
    yield from validate_port_or_name(port.targetPort, f"{path}.targetPort")
    if port.appProtocol is not None:
        found = names.qualified_name(port.appProtocol)
        yield from rules.problems(f"{path}.appProtocol", port.appProtocol, found)


def validate_port_or_name(port: int | str, path: str) -> Iterator[FieldError]:
    """Everything wrong with a reference to a container's port."""
    found = names.port_name(port) if isinstance(port, str) else names.port_number(port)
    yield from rules.problems(path, port, found)


def _affinity(spec: ServiceSpec) -> Iterator[FieldError]:
    yield from rules.one_of("spec.sessionAffinity", spec.sessionAffinity, ("ClientIP", "None"))
    path = "spec.sessionAffinityConfig"
    if spec.sessionAffinity == "ClientIP":
        yield from _client_ip(spec.sessionAffinityConfig, path)
    elif spec.sessionAffinity == "None" and spec.sessionAffinityConfig is not None:
        yield FieldError.forbidden(path, "must not be set when session affinity is None")


def _client_ip(config: SessionAffinityConfig | None, path: str) -> Iterator[FieldError]:
    why = "when session affinity type is ClientIP"
    if config is None:
        yield FieldError.required(path, why)
    elif config.clientIP is None:
        yield FieldError.required(f"{path}.clientIP", why)
    elif (timeout := config.clientIP.timeoutSeconds) is None:
        yield FieldError.required(f"{path}.clientIP.timeoutSeconds", why)
    elif not 0 < timeout <= LONGEST_AFFINITY:
        why = f"must be greater than 0 and less than {LONGEST_AFFINITY}"
        yield FieldError.invalid(f"{path}.clientIP.timeoutSeconds", timeout, why)


def cluster_ip_errors(spec: ServiceSpec) -> Iterator[FieldError]:
    """Return the errors of addresses and families that do not depend on the cluster."""
    path = "spec.clusterIPs"
    if spec.clusterIP and not spec.clusterIPs:
        yield FieldError.required(path)
    elif spec.clusterIP and spec.clusterIPs[0] != spec.clusterIP:
        yield FieldError.invalid(path, spec.clusterIPs, "first value must match `clusterIP`")
    elif spec.clusterIPs and not spec.clusterIP:
        why = "must be empty when `clusterIP` is not specified"
        yield FieldError.invalid(path, spec.clusterIPs, why)
    repeated = set(rules.repeated(spec.ipFamilies))
    for i, family in enumerate(spec.ipFamilies):
        yield from rules.none_or_one_of(f"spec.ipFamilies[{i}]", family, FAMILIES)
        if i in repeated:
            yield FieldError.duplicate(f"spec.ipFamilies[{i}]", family)
    yield from rules.none_or_one_of("spec.ipFamilyPolicy", spec.ipFamilyPolicy, FAMILY_POLICIES)
    broken = list(_broken_ips(spec.clusterIPs))
    yield from broken
    if len(spec.clusterIPs) > 2:
        yield FieldError.invalid(path, spec.clusterIPs, "may only hold up to 2 values")
    if not broken:
        yield from _ip_families(spec)


def _broken_ips(ips: Sequence[str]) -> Iterator[FieldError]:
    for i, ip in enumerate(ips):
        if i > 0 or ip != "None":
            yield from rules.problems(f"spec.clusterIPs[{i}]", ip, names.ip_address(ip))
        elif len(ips) > 1:
            why = "'None' must be the first and only value"
            yield FieldError.invalid("spec.clusterIPs", ips, why)


def _ip_families(spec: ServiceSpec) -> Iterator[FieldError]:
    if is_headless(spec):
        return
    families = [f"IPv{ipaddress.ip_address(ip).version}" for ip in spec.clusterIPs]
    if len(families) > 1 and len(set(families)) < 2:
        why = "may specify no more than one IP for each IP family"
        yield FieldError.invalid("spec.clusterIPs", spec.clusterIPs, why)
    for i, (wanted, family) in enumerate(zip(spec.ipFamilies, families, strict=False)):
        if wanted in FAMILIES and wanted != family:
            why = f"expected an {wanted} value as indicated by `ipFamilies[{i}]`"
            yield FieldError.invalid(f"spec.clusterIPs[{i}]", spec.clusterIPs[i], why)


def _port_clashes(spec: ServiceSpec) -> Iterator[FieldError]:
    node_ports: set[tuple[str, int]] = set()
    ports: set[tuple[str, int]] = set()
    for i, port in enumerate(spec.ports):
        path = f"spec.ports[{i}]"
        if port.nodePort and spec.type == "ClusterIP":
            why = "may not be used when `type` is 'ClusterIP'"
            yield FieldError.forbidden(f"{path}.nodePort", why)
        if port.nodePort and (port.protocol, port.nodePort) in node_ports:
            yield FieldError.duplicate(f"{path}.nodePort", port.nodePort)
        if (port.protocol, port.port) in ports:
            clash = {"name": "", "protocol": port.protocol, "port": port.port}
            yield FieldError.duplicate(path, clash)
        node_ports.add((port.protocol, port.nodePort))
        ports.add((port.protocol, port.port))


def _source_ranges(obj: Service) -> Iterator[FieldError]:
    annotation = obj.metadata.annotations.get(SOURCE_RANGES)
    if obj.spec.loadBalancerSourceRanges:
        path, ranges = "spec.LoadBalancerSourceRanges", obj.spec.loadBalancerSourceRanges
        places = [f"{path}[{i}]" for i in range(len(ranges))]
    elif annotation is not None:
        path = f"metadata.annotations[{SOURCE_RANGES}]"
        ranges = annotation.split(",") if annotation.strip() else ()
        places = [path] * len(ranges)
    else:
        return
    if obj.spec.type != "LoadBalancer":
        yield FieldError.forbidden(path, _ONLY_BALANCED)
    for place, text in zip(places, ranges, strict=True):
        yield from rules.problems(place, text.strip(), names.cidr(text.strip()))


def _load_balancer(spec: ServiceSpec) -> Iterator[FieldError]:
    balanced = spec.type == "LoadBalancer"
    if not balanced and spec.allocateLoadBalancerNodePorts is not None:
        yield FieldError.forbidden("spec.allocateLoadBalancerNodePorts", _ONLY_BALANCED)
    if balanced and spec.allocateLoadBalancerNodePorts is None:
        yield FieldError.required("allocateLoadBalancerNodePorts")
    if spec.loadBalancerClass is None:
        return
    if balanced:
        found = names.qualified_name(spec.loadBalancerClass)
        yield from rules.problems("spec.loadBalancerClass", spec.loadBalancerClass, found)
    else:
        yield FieldError.forbidden("spec.loadBalancerClass", _ONLY_BALANCED)


def _external_traffic(spec: ServiceSpec) -> Iterator[FieldError]:
    path = "spec.externalTrafficPolicy"
    if is_external(spec):
        yield from rules.one_of(path, spec.externalTrafficPolicy, POLICIES)
    elif spec.externalTrafficPolicy:
        why = "may only be set for externally-accessible services"
        yield FieldError.invalid(path, spec.externalTrafficPolicy, why)
    path, port = "spec.healthCheckNodePort", spec.healthCheckNodePort
    if port and not needs_health_check(spec):
        why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        yield FieldError.invalid(path, port, why)
    elif port:
        yield from rules.problems(path, port, names.port_number(port))


def validate_update(new: Service, old: Service) -> Iterator[FieldError]:
    if "ExternalName" not in (new.spec.type, old.spec.type):
        yield from _kept_ips(new.spec, old.spec)
        yield from _kept_families(new.spec, old.spec)
    if new.spec.type == old.spec.type == "LoadBalancer":
        path, name = "spec.loadBalancerClass", new.spec.loadBalancerClass
        if name != old.spec.loadBalancerClass:
            yield FieldError.invalid(path, name, _SET_ONCE)
    checked = needs_health_check(old.spec) and needs_health_check(new.spec)
    if checked and new.spec.healthCheckNodePort != old.spec.healthCheckNodePort:
        yield FieldError.forbidden("spec.healthCheckNodePort", rules.IMMUTABLE)


def _kept_ips(new: ServiceSpec, old: ServiceSpec) -> Iterator[FieldError]:
    if is_headless(new) and is_headless(old):
        return
    now, before = new.clusterIPs, old.clusterIPs
    if not now and before:
        why = "primary clusterIP can not be unset"
        yield FieldError.invalid("spec.clusterIPs[0]", now, why)
    # Adding or releasing a second address is allowed, so then only the first one counts.
    compared = len(before) if len(now) == len(before) else min(1, len(now), len(before))
    for i in range(compared):
        if now[i] != before[i]:
            yield FieldError.invalid(f"spec.clusterIPs[{i}]", now, _SET_ONCE)
    if len(now) == 1 < len(before):
        yield from _single_stack(new, "clusterIP")


def _kept_families(new: ServiceSpec, old: ServiceSpec) -> Iterator[FieldError]:
    if is_headless(new) or is_headless(old):
        return
    now, before = new.ipFamilies, old.ipFamilies
    if len(now) < len(before) and not new.clusterIPs:
        why = "primary ipFamily can not be unset"
        yield FieldError.invalid("spec.ipFamilies[0]", now, why)
    compared = len(before) if len(now) == len(before) else min(1, len(now), len(before))
    for i in range(compared):
        if now[i] != before[i]:
            yield FieldError.invalid("spec.ipFamilies[0]", now, _SET_ONCE)
    if len(now) == 1 < len(before):
        yield from _single_stack(new, "ipFamily")


def _single_stack(spec: ServiceSpec, released: str) -> Iterator[FieldError]:
    if spec.ipFamilyPolicy != "SingleStack":
        why = f"must be set to 'SingleStack' when releasing the secondary {released}"
        yield FieldError.invalid("spec.ipFamilyPolicy", spec.ipFamilyPolicy, why)


def validate_status(new: Service, old: Service) -> Iterator[FieldError]:
    path = "status.loadBalancer.ingress"
    places = new.status.loadBalancer.ingress
    if places and new.spec.type != "LoadBalancer":
        why = "may only be used when `spec.type` is 'LoadBalancer'"
        yield FieldError.forbidden(path, why)
        return
    for i, place in enumerate(places):
        yield from _ingress(place, f"{path}[{i}]")


def _ingress(place: LoadBalancerIngress, path: str) -> Iterator[FieldError]:
    if place.ip:
        yield from rules.problems(f"{path}.ip", place.ip, names.ip_address(place.ip))
        if place.ipMode is None:
            yield FieldError.required(f"{path}.ipMode", "must be specified when `ip` is set")
        yield from rules.none_or_one_of(f"{path}.ipMode", place.ipMode, ("Proxy", "VIP"))
    elif place.ipMode is not None:
        why = "may not be specified when `ip` is not set"
        yield FieldError.forbidden(f"{path}.ipMode", why)
    if place.hostname:
        found = names.dns_subdomain(place.hostname)
        yield from rules.problems(f"{path}.hostname", place.hostname, found)
        if not names.ip_address(place.hostname):
            why = "must be a DNS name, not an IP address"
            yield FieldError.invalid(f"{path}.hostname", place.hostname, why)
