"""Which elements a pod adds to a set of the kernel: its address, or its named ports."""

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address
from typing import NamedTuple

from kedge.node.network import ruleset
from kedge.node.policies.compiled_policy import PeerGroup, PortGroup
from kedge.node.policies.policy_objects import PolicyPod
from kedge.node.policies.ranges import contains

Labels = Mapping[str, str]


class PeerAddresses(NamedTuple):
    """The addresses of the pods that the selectors of a rule match."""

    peers: PeerGroup


class NamedPorts(NamedTuple):
    """The named ports of the pods of a namespace: where an ingress rule may lead."""

    namespace: str
    ports: PortGroup


class PeerPorts(NamedTuple):
    """Where an egress rule may lead to exactly one port: the named ports of its peers, and service
    ports that a program of the machine serves."""

    peers: PeerGroup | None
    ports: PortGroup | None


MemberSet = PeerAddresses | NamedPorts | PeerPorts
"""The content of a set, as a function of pods."""


class HostedPort(NamedTuple):
    """A service port that a program of the machine serves instead of a pod. Users know its service
    address and, for DNS, the labels that its pods usually have."""

    namespace: str
    labels: Labels | None
    """None if no selector matches it."""
    name: str
    protocol: str
    address: IPv4Address
    port: int
    target: IPv4Address
    """The address that packets have after translation."""
    target_port: int


def elements_of(members: MemberSet, pod: PolicyPod, namespace: Labels) -> Iterator[bytes]:
    """Yield the keys that a pod adds to a set; `namespace` has the labels of its namespace."""
    address = pod.address
    if address is None:
        return
    match members:
        case PeerAddresses(peers):
            if is_selected(peers, pod.namespace, pod.labels, namespace):
                yield address.packed
        case NamedPorts(only, ports):
            if pod.namespace == only:
                yield from _named_ports(pod, address, ports)
        case PeerPorts(to, ports):
            if ports is not None and ports.names and _is_peer(to, pod, namespace):
                yield from _named_ports(pod, address, ports)


def hosted_elements(members: MemberSet, hosted: HostedPort, namespace: Labels) -> Iterator[bytes]:
    """Yield the key of a hosted port, if an egress rule allows the port that users know."""
    if not isinstance(members, PeerPorts):
        return
    peers, ports = members
    if _allows_hosted_port(ports, hosted) and _allows_hosted_peer(peers, hosted, namespace):
        yield ruleset.key(hosted.target, hosted.protocol, hosted.target_port)


def is_selected(peers: PeerGroup, where: str, labels: Labels, namespace: Labels) -> bool:
    """Return whether a selector matches a pod with these labels in this namespace."""
    for each in peers.selectors:
        if each.namespaces is None:
            if each.namespace != where:
                continue
        elif not each.namespaces.matches(namespace):
            continue
        if each.pods.matches(labels):
            return True
    return False


def _is_peer(peers: PeerGroup | None, pod: PolicyPod, namespace: Labels) -> bool:
    if peers is None:
        return True
    is_in_block = pod.address is not None and contains(peers.blocks, int(pod.address))
    return is_in_block or is_selected(peers, pod.namespace, pod.labels, namespace)


def _named_ports(pod: PolicyPod, address: IPv4Address, ports: PortGroup) -> Iterator[bytes]:
    for each in pod.ports:
        if (each.protocol, each.name) in ports.names and each.protocol in ruleset.PROTOCOLS:
            yield ruleset.key(address, each.protocol, each.number)


def _allows_hosted_port(ports: PortGroup | None, hosted: HostedPort) -> bool:
    return (
        ports is None
        or ports.has_number(hosted.protocol, hosted.port)
        or (hosted.protocol, hosted.name) in ports.names
    )


def _allows_hosted_peer(peers: PeerGroup | None, hosted: HostedPort, namespace: Labels) -> bool:
    if peers is None or contains(peers.blocks, int(hosted.address)):
        return True
    if hosted.labels is None:
        return False
    return is_selected(peers, hosted.namespace, hosted.labels, namespace)
