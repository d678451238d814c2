"""Subsets: the endpoints of a service for Endpoints objects, grouped by ports."""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from kedge.api.core_v1.endpoints import EndpointAddress, EndpointPort, EndpointSubset
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.service_types import Service
from kedge.controllers.pod_state import is_leaving, is_ready
from kedge.controllers.services.backends import (
    PortNames,
    PortNumbers,
    addresses,
    families,
    hostname_of,
    is_placed,
)
from kedge.controllers.services.backends import reference as reference_to

MOST: Final = 1000
"""Addresses in one Endpoints object; the rest is left out, and said to be."""

Group = dict[EndpointAddress, bool]
"""Addresses, and whether each is ready."""


def subsets_of(service: Service, pods: Iterable[Pod]) -> list[EndpointSubset]:
    """Where a service is to be had."""
    names = PortNames(service.spec.ports)
    by_numbers: dict[PortNumbers, Group] = {}
    published = service.spec.publishNotReadyAddresses
    for pod in pods:
        if not is_placed(pod) or (is_leaving(pod) and not published):
            continue
        address = _address(service, pod)
        if address is not None:
            group = by_numbers.setdefault(names.numbers(pod), {})
            group[address] = published or is_ready(pod)
    return _packed([(_ports(service, each), group) for each, group in by_numbers.items()])


def repacked(subsets: Iterable[EndpointSubset]) -> list[EndpointSubset]:
    """The same in the form in which we would write it; who is not ready at a port is not, even if
    it is said to be elsewhere."""
    return _packed([(subset.ports or (None,), _group(subset)) for subset in subsets])


def _group(subset: EndpointSubset) -> Group:
    return dict.fromkeys(subset.addresses, True) | dict.fromkeys(subset.notReadyAddresses, False)


def _address(service: Service, pod: Pod) -> EndpointAddress | None:
    found = addresses(pod, families(service)[0])
    if not found:
        return None
    return EndpointAddress(
        ip=found[0],
        nodeName=pod.spec.nodeName or None,
        hostname=hostname_of(pod, service),
        targetRef=reference_to(pod),
    )


def _ports(service: Service, numbers: PortNumbers) -> list[EndpointPort | None]:
    if not service.spec.ports:
        return [None]
    return [
        EndpointPort(
            name=port.name,
            port=number,
            protocol=port.protocol or "TCP",
            appProtocol=port.appProtocol,
        )
        for port, number in zip(service.spec.ports, numbers, strict=True)
        if number is not None
    ]


def _packed(
    offers: Sequence[tuple[Sequence[EndpointPort | None], Group]],
) -> list[EndpointSubset]:
    """Group ports by the addresses that serve them.

    Thousands of ports of a service are mostly served by the same pods, so addresses are
    processed once per group of ports and not once per port.
    """
    offered_by: dict[EndpointPort | None, list[int]] = {}
    for i, (ports, _) in enumerate(offers):
        for port in dict.fromkeys(ports):
            offered_by.setdefault(port, []).append(i)
    alike: dict[tuple[int, ...], list[EndpointPort]] = {}
    for port, offering in offered_by.items():
        alike.setdefault(tuple(offering), []).extend([port] if port else [])
    groups: dict[frozenset[tuple[EndpointAddress, bool]], list[EndpointPort]] = {}
    for which, together in alike.items():
        group: Group = {}
        for i in which:
            for address, ready in offers[i][1].items():
                group[address] = ready and group.get(address, True)
        groups.setdefault(frozenset(group.items()), []).extend(together)
    made = [_subset(ports, dict(members)) for members, ports in groups.items()]
    return sorted(made, key=lambda each: [_port_order(port) for port in each.ports])


def _subset(ports: list[EndpointPort], group: Group) -> EndpointSubset:
    members = sorted(group, key=_address_order)
    return EndpointSubset(
        addresses=[each for each in members if group[each]],
        notReadyAddresses=[each for each in members if not group[each]],
        ports=sorted(ports, key=_port_order),
    )


def _address_order(address: EndpointAddress) -> tuple[str, str]:
    return address.ip, address.targetRef.uid if address.targetRef else ""


def _port_order(port: EndpointPort) -> tuple[str, int, str]:
    return port.name, port.port, port.protocol


def bounded(subsets: Sequence[EndpointSubset]) -> tuple[list[EndpointSubset], bool]:
    """No more addresses than one object may have, ready ones first; and whether some were left
    out. Each subset gives in proportion."""
    ready = sum(len(each.addresses) for each in subsets)
    waiting = sum(len(each.notReadyAddresses) for each in subsets)
    if ready + waiting <= MOST:
        return list(subsets), False
    if ready > MOST:
        shares = _shares([len(each.addresses) for each in subsets], MOST)
        return [
            replace(each, addresses=each.addresses[:share], notReadyAddresses=())
            for each, share in zip(subsets, shares, strict=True)
        ], True
    shares = _shares([len(each.notReadyAddresses) for each in subsets], MOST - ready)
    return [
        replace(each, notReadyAddresses=each.notReadyAddresses[:share])
        for each, share in zip(subsets, shares, strict=True)
    ], True


def _shares(sizes: Sequence[int], most: int) -> list[int]:
    whole, left = sum(sizes), most
    shares = []
    for size in sizes:
        share = min(-(-size * most // whole), left)
        left -= share
        shares.append(share)
    return shares
