"""Slicing: distributes the endpoints of a service over slices with as few writes as possible."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.service import RESOURCE as SERVICES
from kedge.api.core_v1.service_types import Service
from kedge.api.discovery_v1.endpoint_slice import (
    Endpoint,
    EndpointConditions,
    EndpointHints,
    EndpointPort,
    EndpointSlice,
    ForNode,
    ForZone,
)
from kedge.api.model import ObjectMeta
from kedge.controllers.pod_control import NAME_LIMIT, owned_by
from kedge.controllers.pod_state import is_leaving, is_ready
from kedge.controllers.services.backends import (
    HEADLESS,
    PortNames,
    PortNumbers,
    addresses,
    hostname_of,
    is_headless,
    is_placed,
    reference,
)

MOST: Final = 100
"""Endpoints in a slice."""
SERVICE_NAME: Final = "kubernetes.io/service-name"
MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
CONTROLLER: Final = "endpointslice-controller.k8s.io"
ZONE: Final = "topology.kubernetes.io/zone"

NEAR: Final = ("PreferClose", "PreferSameZone", "PreferSameNode")

_RESERVED: Final = (SERVICE_NAME, MANAGED_BY, HEADLESS)

Ports = tuple[EndpointPort, ...]


class SlicePlan(msgspec.Struct):
    """The slices of a service to create, update and delete."""

    create: list[EndpointSlice] = msgspec.field(default_factory=list)
    update: list[EndpointSlice] = msgspec.field(default_factory=list)
    delete: list[EndpointSlice] = msgspec.field(default_factory=list)


def endpoint(service: Service, pod: Pod, node: Node | None, family: str) -> Endpoint:
    """One pod as those see it who want to reach it."""
    serving, leaving = is_ready(pod), is_leaving(pod)
    ready = service.spec.publishNotReadyAddresses or (serving and not leaving)
    zone = node.metadata.labels.get(ZONE, "") if node else ""
    return Endpoint(
        addresses=addresses(pod, family),
        conditions=EndpointConditions(ready=ready, serving=serving, terminating=leaving),
        hostname=hostname_of(pod, service) or None,
        nodeName=pod.spec.nodeName or None,
        targetRef=reference(pod),
        zone=zone or None,
        hints=_hints(service, zone, pod.spec.nodeName) if ready else None,
    )


def _hints(service: Service, zone: str, node: str) -> EndpointHints | None:
    """Return the hints of an endpoint for a service with trafficDistribution; None without one."""
    near = service.spec.trafficDistribution
    zones = [ForZone(name=zone)] if zone and near in NEAR else ()
    nodes = [ForNode(name=node)] if node and near == "PreferSameNode" else ()
    return EndpointHints(forZones=zones, forNodes=nodes) if zones or nodes else None


def ports_of(service: Service, numbers: PortNumbers) -> Ports:
    """Return the endpoint ports of pods with these port numbers."""
    return tuple(
        EndpointPort(
            name=port.name,
            port=number,
            protocol=port.protocol or "TCP",
            appProtocol=port.appProtocol,
        )
        for port, number in zip(service.spec.ports, numbers, strict=True)
        if number is not None
    )


def endpoints_by_ports(
    service: Service, pods: Iterable[Pod], nodes: Mapping[str, Node], family: str
) -> tuple[dict[Ports, list[Endpoint]], list[str]]:
    """The endpoints by their ports, and what is wrong with pods that were left out."""
    names = PortNames(service.spec.ports)
    by_numbers: dict[PortNumbers, list[Endpoint]] = {}
    problems = []
    for pod in sorted(pods, key=lambda each: each.metadata.name):
        if not is_placed(pod):
            continue
        group = by_numbers.setdefault(names.numbers(pod), [])
        node = nodes.get(pod.spec.nodeName)
        if node is None and not service.spec.publishNotReadyAddresses:
            meta = service.metadata
            problems.append(
                f"skipping Pod {pod.metadata.name} for Service {meta.namespace}/{meta.name}: "
                f"Node {pod.spec.nodeName} Not Found"
            )
            continue
        made = endpoint(service, pod, node, family)
        if made.addresses:
            group.append(made)
    groups: dict[Ports, list[Endpoint]] = {}
    for numbers, endpoints in by_numbers.items():
        groups.setdefault(ports_of(service, numbers), []).extend(endpoints)
    return groups, problems


def plan(
    service: Service,
    family: str,
    groups: Mapping[Ports, Sequence[Endpoint]],
    present: Sequence[EndpointSlice],
) -> SlicePlan:
    """Return the changes from the current slices of one address family to the desired ones."""
    made = SlicePlan()
    by_ports: dict[Ports, list[EndpointSlice]] = {}
    for slice_ in present:
        if _owned(slice_, service):
            by_ports.setdefault(tuple(slice_.ports), []).append(slice_)
        else:
            made.delete.append(slice_)
    for ports, endpoints in groups.items():
        blank = _blank(service, family, ports)
        _deal(made, blank, endpoints, by_ports.pop(ports, []))
    for slices in by_ports.values():
        made.delete += slices
    if len(made.delete) == len(present) and not made.create:
        _hold_a_place(made, _blank(service, family, ()))
    return _reused(made, service)


def _deal(
    made: SlicePlan,
    blank: EndpointSlice,
    endpoints: Sequence[Endpoint],
    present: list[EndpointSlice],
) -> None:
    """Leave endpoints in the slices where they are, and put new ones where slices change anyway,
    else where all of them fit, else into new ones."""
    new = {_identity(each): each for each in endpoints}
    changed: list[EndpointSlice] = []
    same: list[EndpointSlice] = []
    for slice_ in present:
        names = [_identity(each) for each in slice_.endpoints]
        kept = [new.pop(name) for name in names if name in new]
        if not kept and slice_.endpoints:
            made.delete.append(slice_)
        elif kept != list(slice_.endpoints) or _relabelled(slice_, blank):
            changed.append(replace(slice_, endpoints=kept, metadata=_meta(slice_, blank)))
        else:
            same.append(slice_)
    rest = list(new.values())
    changed.sort(key=lambda each: -len(each.endpoints))
    for slice_ in changed:
        filled, rest = _filled(slice_, rest)
        made.update.append(filled)
    roomy = [each for each in same if len(each.endpoints) + len(rest) <= MOST]
    if rest and roomy:
        fullest = max(roomy, key=lambda each: len(each.endpoints))
        filled, rest = _filled(fullest, rest)
        made.update.append(filled)
    while rest:
        filled, rest = _filled(blank, rest)
        made.create.append(filled)


def _filled(slice_: EndpointSlice, more: list[Endpoint]) -> tuple[EndpointSlice, list[Endpoint]]:
    """A slice with as many more endpoints as it can take, and those that are left."""
    room = MOST - len(slice_.endpoints)
    return replace(slice_, endpoints=[*slice_.endpoints, *more[:room]]), more[room:]


def _hold_a_place(made: SlicePlan, blank: EndpointSlice) -> None:
    """A service without endpoints has one empty slice, which says just that."""
    if len(made.delete) == 1 and _is_like(made.delete[0], blank):
        made.delete = []
    else:
        made.create.append(blank)


def _is_like(slice_: EndpointSlice, blank: EndpointSlice) -> bool:
    return (
        not slice_.endpoints
        and not slice_.ports
        and slice_.metadata.labels == blank.metadata.labels
        and list(slice_.metadata.ownerReferences) == list(blank.metadata.ownerReferences)
    )


def _reused(made: SlicePlan, service: Service) -> SlicePlan:
    """The same, but that slices which would go are changed into those which would be made."""
    gone = []
    for slice_ in made.delete:
        if made.create and _owned(slice_, service):
            new = made.create.pop()
            meta = replace(slice_.metadata, labels=new.metadata.labels)
            made.update.append(replace(new, metadata=meta))
        else:
            gone.append(slice_)
    made.delete = gone
    return made


def _identity(each: Endpoint) -> tuple[object, ...]:
    """Return the identity of an endpoint, independent of its conditions."""
    target = each.targetRef.uid if each.targetRef else ""
    return tuple(each.addresses), each.hostname, each.nodeName, target


def _owned(slice_: EndpointSlice, service: Service) -> bool:
    return any(
        each.uid == service.metadata.uid and each.kind == "Service"
        for each in slice_.metadata.ownerReferences
    )


def _blank(service: Service, family: str, ports: Ports) -> EndpointSlice:
    """An empty slice of a service."""
    prefix = f"{service.metadata.name}-"
    return EndpointSlice(
        metadata=ObjectMeta(
            generateName=prefix if len(prefix) <= NAME_LIMIT else service.metadata.name,
            namespace=service.metadata.namespace,
            labels=labels_of(service),
            ownerReferences=[owned_by(SERVICES, service)],
        ),
        addressType=family,
        endpoints=[],
        ports=list(ports),
    )


def labels_of(service: Service) -> dict[str, str]:
    """The labels of a service's slices: its own, but for those that have a meaning here."""
    own = {key: value for key, value in service.metadata.labels.items() if key not in _RESERVED}
    headless = {HEADLESS: ""} if is_headless(service) else {}
    return {**own, **headless, SERVICE_NAME: service.metadata.name, MANAGED_BY: CONTROLLER}


def _relabelled(slice_: EndpointSlice, blank: EndpointSlice) -> bool:
    return slice_.metadata.labels != blank.metadata.labels


def _meta(slice_: EndpointSlice, blank: EndpointSlice) -> ObjectMeta:
    return replace(slice_.metadata, labels=blank.metadata.labels)
