"""A NetworkPolicy, made ready for many pods: compiled selectors, merged ranges.

The work depends on the size of the policy, which its author chooses, so it is done in a thread and
is limited. Parts beyond a limit are left out, which allows less and never more.
"""

from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Network
from typing import Final, NamedTuple

from kedge.api.builtin.policy_limits import MOST_ENTRIES, MOST_RULES, MOST_SELECTORS
from kedge.api.label_selector import compiled
from kedge.machinery.selectors import EVERYTHING, LabelRequirements
from kedge.node.policies.policy_objects import (
    AddressBlock,
    NetworkPolicy,
    PolicyEgressRule,
    PolicyIngressRule,
    PolicyPeer,
    PolicyPort,
)
from kedge.node.policies.ranges import Range, Ranges, contains, network_range, union, without

ALL_PORTS: Final = (Range(0, 65535),)
INGRESS, EGRESS = "Ingress", "Egress"


class PeerSelector(NamedTuple):
    """Pods as peers: those of one namespace, or those of namespaces with certain labels."""

    namespace: str
    namespaces: LabelRequirements | None
    """None for the one namespace."""
    pods: LabelRequirements


class PeerGroup(NamedTuple):
    """The peers of a rule."""

    selectors: tuple[PeerSelector, ...]
    blocks: Ranges


class PortName(NamedTuple):
    """A port that each pod may have at another number."""

    protocol: str
    name: str


class PortGroup(NamedTuple):
    """The ports of a rule."""

    numbers: tuple[tuple[str, Ranges], ...]
    """By protocol."""
    names: tuple[PortName, ...]

    def has_number(self, protocol: str, number: int) -> bool:
        return any(each == protocol and contains(found, number) for each, found in self.numbers)


class AllowRule(NamedTuple):
    """Connections that are allowed."""

    peers: PeerGroup | None
    """None for everybody."""
    ports: PortGroup | None
    """None for all ports of all protocols."""


class CompiledPolicy(NamedTuple):
    """A policy. The rules of a direction are None if the policy does not isolate pods for it."""

    namespace: str
    pods: LabelRequirements
    ingress: tuple[AllowRule, ...] | None
    egress: tuple[AllowRule, ...] | None
    excess: str = ""
    """Which limit the policy exceeds, so that a part of it is left out."""


def compile_policy(policy: NetworkPolicy) -> CompiledPolicy:
    spec, namespace = policy.spec, policy.metadata.namespace
    types = spec.policy_types or ([INGRESS, EGRESS] if spec.egress else [INGRESS])
    budget = _Budget()
    ingress = _rules(spec.ingress, namespace, budget) if INGRESS in types else None
    egress = _rules(spec.egress, namespace, budget) if EGRESS in types else None
    return CompiledPolicy(
        namespace, compiled(spec.pod_selector), ingress, egress, "; ".join(sorted(budget.exceeded))
    )


class _Budget:
    """How much of one policy is still taken."""

    def __init__(self) -> None:
        self.exceeded: set[str] = set()
        self._entries = MOST_ENTRIES

    def takes(self, entries: int) -> bool:
        if entries > self._entries:
            self.exceeded.add(f"more than {MOST_ENTRIES:,} ports, peers and exceptions")
            return False
        self._entries -= entries
        return True

    def limited(self, found: Sequence[AllowRule]) -> tuple[AllowRule, ...]:
        if len(found) > MOST_RULES:
            self.exceeded.add(f"more than {MOST_RULES:,} rules with different ports")
        return tuple(found[:MOST_RULES])

    def limited_selectors(self, found: Sequence[PeerSelector]) -> tuple[PeerSelector, ...]:
        if len(found) > MOST_SELECTORS:
            self.exceeded.add(f"more than {MOST_SELECTORS:,} different selectors in a rule")
        return tuple(found[:MOST_SELECTORS])


def _rules(
    rules: Iterable[PolicyIngressRule | PolicyEgressRule] | None, namespace: str, budget: _Budget
) -> tuple[AllowRule, ...]:
    """Return the rules of a direction; those with the same ports become one."""
    peers: dict[PortGroup | None, list[PeerGroup | None]] = {}
    for each in rules or ():
        ports = _port_group(each.ports, budget) if each.ports else None
        group = _peer_group(each.peers, namespace, budget) if each.peers else None
        peers.setdefault(ports, []).append(group)
    found = [AllowRule(_united(groups, budget), ports) for ports, groups in peers.items()]
    if AllowRule(None, None) in found:
        return (AllowRule(None, None),)
    return budget.limited(found)


def _united(groups: Sequence[PeerGroup | None], budget: _Budget) -> PeerGroup | None:
    known = [each for each in groups if each is not None]
    if len(known) < len(groups):
        return None
    selectors = dict.fromkeys(one for each in known for one in each.selectors)
    blocks = union(one for each in known for one in each.blocks)
    return PeerGroup(budget.limited_selectors(list(selectors)), blocks)


def _peer_group(peers: Iterable[PolicyPeer], namespace: str, budget: _Budget) -> PeerGroup:
    selectors: list[PeerSelector] = []
    blocks: list[Range] = []
    for each in peers:
        block = each.ip_block
        # A block is taken with all its exceptions or not at all.
        if not budget.takes(1 + len((block and block.excepted) or ())):
            break
        if block is not None:
            blocks += _block(block)
        else:
            selectors.append(_selector(each, namespace))
    return PeerGroup(tuple(dict.fromkeys(selectors)), union(blocks))


def _selector(peer: PolicyPeer, namespace: str) -> PeerSelector:
    pods = EVERYTHING if peer.pod_selector is None else compiled(peer.pod_selector)
    if peer.namespace_selector is None:
        return PeerSelector(namespace, None, pods)
    return PeerSelector("", compiled(peer.namespace_selector), pods)


def _block(block: AddressBlock) -> Iterator[Range]:
    """Yield the IPv4 addresses of a block; none if it is a block of IPv6."""
    for whole in _networks([block.cidr]):
        yield from without(whole, _networks(block.excepted or ()))


def _networks(texts: Iterable[str]) -> Iterator[Range]:
    for each in texts:
        try:
            yield network_range(IPv4Network(each, strict=False))
        except ValueError:
            continue


def _port_group(ports: Iterable[PolicyPort], budget: _Budget) -> PortGroup:
    numbers: dict[str, list[Range]] = {}
    names: dict[PortName, None] = {}
    for each in ports:
        if not budget.takes(1):
            break
        match each.port:
            case None:
                numbers.setdefault(each.protocol, []).extend(ALL_PORTS)
            case int(number):
                wanted = Range(number, each.end_port or number)
                numbers.setdefault(each.protocol, []).append(wanted)
            case name:
                names[PortName(each.protocol, name)] = None
    merged = tuple((protocol, union(found)) for protocol, found in sorted(numbers.items()))
    return PortGroup(merged, tuple(sorted(names)))
