"""How a node reaches the pods of nodes on other machines: a pure function of the Nodes.

Both ends of a pair reach the same decision, because each knows what the other one knows: the
machine's address with its network, and the setting `--node-network`.
"""

from collections.abc import Collection, Iterable, Iterator
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Final, NamedTuple

import msgspec

from kedge.api.builtin.service_networks import NODE_PREFIX, POD_NETWORK, SERVICE_RANGE
from kedge.settings.values import NODE_NETWORKS

MACHINE_ADDRESS: Final = "kedge.dev/machine-address"
"""The annotation with the address of the node's machine and the length of its network's prefix."""
NODE_NETWORK: Final = "kedge.dev/node-network"
"""The annotation whose first word is the setting; the rest says what is in use."""
AUTO, ROUTES, VXLAN = NODE_NETWORKS


class NetworkAnnotations(msgspec.Struct, frozen=True, gc=False):
    """The annotations of a Node that describe its network."""

    machine_address: str = msgspec.field(default="", name=MACHINE_ADDRESS)
    node_network: str = msgspec.field(default="", name=NODE_NETWORK)


class NodeAddressesMeta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Name, age and annotations."""

    name: str
    creation_timestamp: str = ""
    annotations: NetworkAnnotations = NetworkAnnotations()


class NodeAddressesSpec(msgspec.Struct, frozen=True, gc=False):
    """The pod network."""

    pod_cidr: str = msgspec.field(default="", name="podCIDR")


class NodeAddresses(msgspec.Struct, frozen=True, gc=False):
    """A Node without everything that does not matter to the pod networks of other nodes."""

    metadata: NodeAddressesMeta
    spec: NodeAddressesSpec = NodeAddressesSpec()


class NodeSite(NamedTuple):
    """Where the pods of a node are."""

    name: str
    network: IPv4Network | None
    """The pod network; None if pods have no addresses of their own."""
    machine: IPv4Interface | None
    """The address of the machine; None if other machines cannot reach it."""
    setting: str
    since: str = ""
    """When the Node was created, by the server's clock."""


class PeerNode(NamedTuple):
    """A node on another machine, and how its pods are reached."""

    name: str
    network: IPv4Network
    address: IPv4Address
    way: str
    """ROUTES or VXLAN."""


class UnreachableNode(NamedTuple):
    """A node whose pods cannot be reached."""

    name: str
    why: str


class PeerPlan(NamedTuple):
    """The nodes on other machines."""

    peers: tuple[PeerNode, ...] = ()
    unreachable: tuple[UnreachableNode, ...] = ()

    def networks(self, way: str) -> list[IPv4Network]:
        return [each.network for each in self.peers if each.way == way]


class LocalNetworks(NamedTuple):
    """The addresses and pod networks of this machine."""

    addresses: Collection[IPv4Address] = ()
    bridges: Collection[IPv4Network] = ()
    """The pod networks of all nodes and clusters of the machine."""


def site(node: NodeAddresses) -> NodeSite:
    """Return what a Node says about itself; what is malformed counts as missing."""
    annotations = node.metadata.annotations
    return NodeSite(
        name=node.metadata.name,
        network=_network(node.spec.pod_cidr),
        machine=_machine(annotations.machine_address),
        setting=next(iter(annotations.node_network.split()), ""),
        since=node.metadata.creation_timestamp,
    )


def is_machine_address(address: IPv4Address) -> bool:
    """Return whether an address may be that of a machine: a packet to a pod that was wrapped for an
    address of pods or Services would come back to where it was wrapped."""
    is_special = address.is_loopback or address.is_multicast or address.is_unspecified
    is_inside = address in POD_NETWORK or address in SERVICE_RANGE
    return not (is_special or is_inside or address.is_reserved or address.is_link_local)


def plan(own: NodeSite, others: Iterable[NodeSite], local: LocalNetworks) -> PeerPlan:
    """Decide about all other nodes. If two nodes have the same network, the older one keeps it:
    no node can take the traffic of another one's pods by writing to its own Node."""
    peers: list[PeerNode] = []
    unreachable: list[UnreachableNode] = []
    holders = {own.network: own.name} if own.network else {}
    for each in sorted(others, key=lambda other: (other.since, other.name)):
        if each.name == own.name or each.network is None:
            continue
        if why := _unusable(each.network, holders):
            unreachable.append(UnreachableNode(each.name, why))
            continue
        holders[each.network] = each.name
        if _is_here(each, own, local):
            continue
        found = _way(own, each, local)
        if isinstance(found, PeerNode):
            peers.append(found)
        else:
            unreachable.append(found)
    return PeerPlan(tuple(peers), tuple(unreachable))


def _unusable(network: IPv4Network, holders: dict[IPv4Network, str]) -> str:
    if network.prefixlen != NODE_PREFIX or not network.subnet_of(POD_NETWORK):
        return f"its pod network {network} is not a /{NODE_PREFIX} network of {POD_NETWORK}"
    if holder := holders.get(network):
        return f'its pod network {network} belongs to the node "{holder}"'
    return ""


def _is_here(other: NodeSite, own: NodeSite, local: LocalNetworks) -> bool:
    """Return whether a node is on this machine: its bridge is the way to its pods."""
    if other.machine is None:
        return own.machine is None or other.network in local.bridges
    return other.machine.ip in local.addresses


def _way(own: NodeSite, other: NodeSite, local: LocalNetworks) -> PeerNode | UnreachableNode:
    assert other.network is not None
    if other.network in local.bridges:
        why = f"another cluster of this machine uses its pod network {other.network}"
        return UnreachableNode(other.name, why)
    if other.machine is None or own.machine is None:
        missing = other.name if other.machine is None else own.name
        why = f'the node "{missing}" has no address that other machines reach'
        return UnreachableNode(other.name, why)
    asked = {own.setting, other.setting}
    if not asked <= set(NODE_NETWORKS):
        return UnreachableNode(other.name, "it does not say how its pods are reached")
    shares_segment = _share_segment(own.machine, other.machine)
    if VXLAN not in asked and shares_segment:
        return PeerNode(other.name, other.network, other.machine.ip, ROUTES)
    if ROUTES not in asked:
        return PeerNode(other.name, other.network, other.machine.ip, VXLAN)
    without = own.name if own.setting == ROUTES else other.name
    reason = "is told to use it" if shares_segment else "is not on the same network segment"
    with_it = other.name if without == own.name else own.name
    why = f'the node "{without}" does not use VXLAN, and the node "{with_it}" {reason}'
    return UnreachableNode(other.name, why)


def _share_segment(one: IPv4Interface, other: IPv4Interface) -> bool:
    """Return whether each is in the other one's network."""
    return one.ip in other.network and other.ip in one.network


def described(setting: str, found: PeerPlan, lack: str = "") -> str:
    """Return the annotation: the setting, and what is in use or why not."""
    used = [way for way in (ROUTES, VXLAN) if found.networks(way)]
    notes = list(_notes(used, found, lack))
    return f"{setting} ({'; '.join(notes)})" if notes else setting


def _notes(used: list[str], found: PeerPlan, lack: str) -> Iterator[str]:
    if used:
        yield " and ".join(used)
    if lack:
        yield lack
    if found.unreachable:
        names = [each.name for each in found.unreachable]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        yield f"unreachable: {', '.join(names[:3])}{more}"


def _network(text: str) -> IPv4Network | None:
    try:
        return IPv4Network(text)
    except ValueError:
        return None


def _machine(text: str) -> IPv4Interface | None:
    try:
        found = IPv4Interface(text)
    except ValueError:
        return None
    return found if is_machine_address(found.ip) else None
