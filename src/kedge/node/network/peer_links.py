"""The routes, neighbours and VXLAN link that lead to the pods of other machines, in the kernel.

A node's routes carry kedge's protocol number and a metric of the node's own. So a node finds and
removes exactly its own routes; those of other nodes of the machine lead the same way and take over
when they are gone, and those of others, which have a lower metric, win.
"""

import socket
import struct
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Final, NamedTuple

from kedge.node.network import tunnel
from kedge.node.network.netlink import (
    CREATE,
    DEL_ROUTE,
    DUMP,
    EXCLUSIVE,
    GET_LINK,
    GET_ROUTE,
    LINK,
    MAIN_TABLE,
    NEW_LINK,
    NEW_ROUTE,
    ROUTE,
    Netlink,
    attribute,
    attributes,
    nested,
    number,
    text,
)
from kedge.node.network.peers import ROUTES, VXLAN, PeerPlan

PROTOCOL: Final = 107
"""Marks the routes of kedge, so that they are not mistaken for those of others."""
_NEW_NEIGHBOUR, _DEL_NEIGHBOUR, _GET_NEIGHBOUR = 28, 29, 30
_NEIGHBOUR: Final = struct.Struct("=BxxxiHBB")
_PERMANENT: Final = 0x80
_SELF: Final = 2
"""NTF_SELF: an entry of the link itself, not of a bridge that it is a port of."""
_ON_LINK: Final = 4
"""RTNH_F_ONLINK: the gateway is behind the link, whatever its address."""
_REPLACE: Final = 0x100
_LOCAL_BIND: Final = 34


class PeerRoute(NamedTuple):
    """A route to the pods of one node."""

    network: IPv4Network
    gateway: IPv4Address
    link: int


class Neighbour(NamedTuple):
    """The hardware address of the other end of a tunnel."""

    address: IPv4Address
    hardware_address: bytes


class TunnelEntry(NamedTuple):
    """The machine to which frames for a hardware address are sent, and the number of its tunnel."""

    hardware_address: bytes
    machine: IPv4Address
    number: int


class VxlanLink(NamedTuple):
    """The parameters of a node's VXLAN link."""

    number: int
    local: IPv4Address
    mtu: int


class PeerState(NamedTuple):
    """Everything that a node has in the kernel for its peers, except the link itself."""

    routes: frozenset[PeerRoute] = frozenset()
    neighbours: frozenset[Neighbour] = frozenset()
    entries: frozenset[TunnelEntry] = frozenset()


class PeerChange(NamedTuple):
    """The way from one state to another."""

    removed: PeerState
    added: PeerState


def wanted(found: PeerPlan, underlay: int, vxlan: int) -> PeerState:
    """Return the state that a plan needs, with the indexes of the machine's link and of the
    tunnel."""
    routed = [each for each in found.peers if each.way == ROUTES]
    tunnelled = [each for each in found.peers if each.way == VXLAN]
    routes = {PeerRoute(each.network, each.address, underlay) for each in routed}
    # The gateway is the network's own address: no pod has it.
    routes |= {PeerRoute(each, each.network_address, vxlan) for each in found.networks(VXLAN)}
    return PeerState(
        frozenset(routes),
        frozenset(
            Neighbour(each.network_address, tunnel.hardware_address(each))
            for each in found.networks(VXLAN)
        ),
        frozenset(
            TunnelEntry(
                tunnel.hardware_address(each.network), each.address, tunnel.number(each.network)
            )
            for each in tunnelled
        ),
    )


def difference(have: PeerState, want: PeerState) -> PeerChange:
    """Return what to remove and what to add."""
    return PeerChange(
        PeerState(
            have.routes - want.routes,
            have.neighbours - want.neighbours,
            have.entries - want.entries,
        ),
        PeerState(
            want.routes - have.routes,
            want.neighbours - have.neighbours,
            want.entries - have.entries,
        ),
    )


def read(netlink: Netlink, metric: int, vxlan: int) -> PeerState:
    """Return what the kernel has of the node with this metric."""
    neighbours, entries = frozenset[Neighbour](), frozenset[TunnelEntry]()
    if vxlan:
        neighbours = frozenset(_neighbours(netlink, vxlan))
        entries = frozenset(_entries(netlink, vxlan))
    return PeerState(frozenset(own_routes(netlink, metric)), neighbours, entries)


def apply(netlink: Netlink, change: PeerChange, metric: int, vxlan: int) -> None:
    """Carry out a change. Entries and neighbours come first, so that no route leads nowhere; a
    changed route replaces the old one. Raises OSError."""
    removed, added = change
    for entry in removed.entries:
        netlink.ask(_DEL_NEIGHBOUR, 0, _entry(entry, vxlan))
    for entry in added.entries:
        netlink.ask(_NEW_NEIGHBOUR, CREATE | _REPLACE, _entry(entry, vxlan))
    for each in added.neighbours:
        netlink.ask(_NEW_NEIGHBOUR, CREATE | _REPLACE, _neighbour(each, vxlan))
    for route in added.routes:
        netlink.ask(
            NEW_ROUTE, CREATE | _REPLACE, _route(route, metric, is_tunnel=route.link == vxlan)
        )
    replaced = {each.network for each in added.routes}
    remove_routes(
        netlink, [each for each in removed.routes if each.network not in replaced], metric
    )
    for each in removed.neighbours:
        netlink.ask(_DEL_NEIGHBOUR, 0, _neighbour(each, vxlan))


def own_routes(netlink: Netlink, metric: int) -> list[PeerRoute]:
    """Return the routes that the node with this metric has added."""
    found = []
    for answer in netlink.ask(GET_ROUTE, DUMP, ROUTE.pack(socket.AF_INET, *[0] * 8)):
        given = attributes(answer[ROUTE.size :])
        if answer[4] != MAIN_TABLE or answer[5] != PROTOCOL or not {1, 4, 5, 6} <= given.keys():
            continue
        if _unpacked(given[6]) == metric:
            network = IPv4Network((given[1], answer[1]), strict=False)
            found.append(PeerRoute(network, IPv4Address(given[5]), _unpacked(given[4])))
    return found


def remove_routes(netlink: Netlink, routes: Iterable[PeerRoute], metric: int) -> None:
    for each in routes:
        try:
            netlink.ask(DEL_ROUTE, 0, _route(each, metric, is_tunnel=False))
        except ProcessLookupError:
            # The kernel removed it together with its link.
            continue


def add_vxlan(netlink: Netlink, name: str, link: VxlanLink, network: IPv4Network) -> None:
    """Add the VXLAN link of a node, with an address, up."""
    add_bare_vxlan(netlink, name, link, tunnel.hardware_address(network))
    index = netlink.index(name)
    # Connections of the machine to pods elsewhere, and masqueraded ones, have this address. It is
    # one of the node's own, so that the other end accepts it, and answers come back by the tunnel.
    netlink.add_address(index, IPv4Interface(f"{network.network_address + 1}/32"))
    netlink.raise_link(index)


def add_bare_vxlan(netlink: Netlink, name: str, link: VxlanLink, hardware_address: bytes) -> None:
    """Add a VXLAN link. Raises OSError if the kernel has no VXLAN, or if another link has the same
    number."""
    data = number(1, link.number) + attribute(4, link.local.packed)
    # No learning: otherwise any packet could redirect the traffic of a peer.
    data += attribute(7, b"\0") + attribute(15, tunnel.PORT.to_bytes(2, "big"))
    # Listen on this address alone. Kernels before 6.13 ignore it, and listen on all.
    data += attribute(_LOCAL_BIND, b"\1")
    kind = nested(18, text(1, "vxlan") + nested(2, data))
    own = attribute(1, hardware_address) + number(4, link.mtu)
    head = LINK.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
    netlink.ask(NEW_LINK, CREATE | EXCLUSIVE, head + text(3, name) + own + kind)


def read_vxlan(netlink: Netlink, name: str) -> VxlanLink | None:
    """Return the parameters of an existing link; None if there is none, or of another kind."""
    head = LINK.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
    try:
        answers = netlink.ask(GET_LINK, 0, head + text(3, name))
    except OSError:
        return None
    given = attributes(answers[0][LINK.size :])
    data = attributes(attributes(given.get(18, b"")).get(2, b""))
    if not {1, 4} <= data.keys() or data.get(15) != tunnel.PORT.to_bytes(2, "big"):
        return None
    return VxlanLink(_unpacked(data[1]), IPv4Address(data[4]), _unpacked(given[4]))


def _neighbours(netlink: Netlink, vxlan: int) -> Iterable[Neighbour]:
    for given in _of_link(netlink, socket.AF_INET, vxlan):
        if {1, 2} <= given.keys():
            yield Neighbour(IPv4Address(given[1]), given[2])


def _entries(netlink: Netlink, vxlan: int) -> Iterable[TunnelEntry]:
    for given in _of_link(netlink, socket.AF_BRIDGE, vxlan):
        if {1, 2} <= given.keys() and len(given[1]) == 4:
            # Without a number, the kernel takes that of the link itself.
            named = _unpacked(given[7]) if 7 in given else 0
            yield TunnelEntry(given[2], IPv4Address(given[1]), named)


def _of_link(netlink: Netlink, family: int, vxlan: int) -> Iterable[dict[int, bytes]]:
    request = _NEIGHBOUR.pack(family, 0, 0, 0, 0)
    for answer in netlink.ask(_GET_NEIGHBOUR, DUMP, request):
        _, index, state, _, _ = _NEIGHBOUR.unpack_from(answer)
        if index == vxlan and state & _PERMANENT:
            yield attributes(answer[_NEIGHBOUR.size :])


def _neighbour(each: Neighbour, vxlan: int) -> bytes:
    head = _NEIGHBOUR.pack(socket.AF_INET, vxlan, _PERMANENT, 0, 0)
    return head + attribute(1, each.address.packed) + attribute(2, each.hardware_address)


def _entry(each: TunnelEntry, vxlan: int) -> bytes:
    head = _NEIGHBOUR.pack(socket.AF_BRIDGE, vxlan, _PERMANENT, _SELF, 0)
    there = attribute(1, each.machine.packed) + attribute(2, each.hardware_address)
    return head + there + number(7, each.number)


def _route(each: PeerRoute, metric: int, *, is_tunnel: bool) -> bytes:
    flags = _ON_LINK if is_tunnel else 0
    head = ROUTE.pack(
        socket.AF_INET, each.network.prefixlen, 0, 0, MAIN_TABLE, PROTOCOL, 0, 1, flags
    )
    there = attribute(1, each.network.network_address.packed) + attribute(5, each.gateway.packed)
    return head + there + number(4, each.link) + number(6, metric)


def _unpacked(content: bytes) -> int:
    return int(struct.unpack("=I", content)[0])
