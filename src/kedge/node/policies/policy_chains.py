"""The chains of policies: which packets they accept, first as values, then as rules of nf_tables.

A packet of a pod that no policy isolates meets one lookup per direction. For an isolated pod, the
lookup leads to the chain of its set of policies, which visits the chain of each policy and then
drops. Names are derived from the content. So chains and ranges never change: another content is
another chain, and only the elements of sets and maps follow the pods.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from kedge.node.network import ruleset
from kedge.node.network.nftables import batch, expressions
from kedge.node.network.nftables.batch import FORWARD, INPUT, ChainHook, SetSpec
from kedge.node.network.nftables.expressions import Rule, rule
from kedge.node.network.ruleset import RuleChain, WayOutAddress
from kedge.node.policies.compiled_policy import (
    ALL_PORTS,
    EGRESS,
    INGRESS,
    AllowRule,
    CompiledPolicy,
    PeerGroup,
    PortGroup,
)
from kedge.node.policies.member_set import MemberSet, NamedPorts, PeerAddresses, PeerPorts
from kedge.node.policies.ranges import Ranges

ISOLATION: Final = {INGRESS: "ingress", EGRESS: "egress"}
"""The maps from addresses of isolated pods to the chains of their policies."""
OWN: Final = "own"
"""The set of pairs of equal addresses: a pod that reaches itself through a Service."""
_PRIORITY: Final = -10
_ADDRESS: Final = ruleset.ADDRESS
_EXACT: Final = SetSpec((batch.IPV4, batch.PROTOCOL, batch.PORT))


class PacketMatch(NamedTuple):
    """Packets that a policy accepts; every condition that is given must hold."""

    addresses: str = ""
    """The set that has the address of the peer."""
    protocol: str = ""
    ports: str = ""
    """The set that has the port of the destination."""
    exact: str = ""
    """The set that has address, protocol and port of the destination."""


class RangeSet(NamedTuple):
    """A set of address ranges or port ranges."""

    type: int
    ranges: Ranges


class PolicyChain(NamedTuple):
    """The chain of one policy for one direction, and the sets that it refers to."""

    name: str
    direction: str
    matches: tuple[PacketMatch, ...]
    members: dict[str, MemberSet]
    ranges: dict[str, RangeSet]


def policy_chains(policy: CompiledPolicy) -> dict[str, PolicyChain]:
    """Return the chain of a policy for each direction for which it isolates pods."""
    rules = {INGRESS: policy.ingress, EGRESS: policy.egress}
    return {
        direction: _chain(policy, direction, found)
        for direction, found in rules.items()
        if found is not None
    }


def _chain(policy: CompiledPolicy, direction: str, rules: Iterable[AllowRule]) -> PolicyChain:
    chain = PolicyChain("", direction, (), {}, {})
    found: dict[PacketMatch, None] = {}
    for each in rules:
        make = _ingress_matches if direction == INGRESS else _egress_matches
        found.update(dict.fromkeys(make(chain, policy.namespace, each)))
    matches = tuple(found)
    return chain._replace(name=_name(ISOLATION[direction], matches), matches=matches)


def _ingress_matches(chain: PolicyChain, namespace: str, allowed: AllowRule) -> list[PacketMatch]:
    ports = list(_port_matches(chain, allowed.ports))
    if allowed.ports is not None and allowed.ports.names:
        exact = _hold(chain, "named", NamedPorts(namespace, allowed.ports))
        ports.append(PacketMatch(exact=exact))
    return list(_crossed(_address_sets(chain, allowed.peers), ports))


def _egress_matches(chain: PolicyChain, _: str, allowed: AllowRule) -> list[PacketMatch]:
    ports = list(_port_matches(chain, allowed.ports))
    found = list(_crossed(_address_sets(chain, allowed.peers), ports))
    if allowed != AllowRule(None, None):
        exact = _hold(chain, "exact", PeerPorts(allowed.peers, allowed.ports))
        found.append(PacketMatch(exact=exact))
    return found


def _crossed(addresses: Sequence[str], ports: Sequence[PacketMatch]) -> Iterator[PacketMatch]:
    for each in addresses:
        for match in ports:
            yield match._replace(addresses=each)


def _address_sets(chain: PolicyChain, peers: PeerGroup | None) -> list[str]:
    """Return the sets that have the addresses of the peers; an empty name for everybody."""
    if peers is None:
        return [""]
    found = []
    if peers.selectors:
        found.append(_hold(chain, "peers", PeerAddresses(peers._replace(blocks=()))))
    if peers.blocks:
        found.append(_hold_ranges(chain, "blocks", RangeSet(batch.IPV4, peers.blocks)))
    return found


def _port_matches(chain: PolicyChain, ports: PortGroup | None) -> Iterator[PacketMatch]:
    if ports is None:
        yield PacketMatch()
        return
    for protocol, numbers in ports.numbers:
        if protocol not in ruleset.PROTOCOLS:
            continue
        if numbers == ALL_PORTS:
            yield PacketMatch(protocol=protocol)
        else:
            name = _hold_ranges(chain, "ports", RangeSet(batch.PORT, numbers))
            yield PacketMatch(protocol=protocol, ports=name)


def _hold(chain: PolicyChain, kind: str, members: MemberSet) -> str:
    name = _name(kind, members)
    chain.members[name] = members
    return name


def _hold_ranges(chain: PolicyChain, kind: str, ranges: RangeSet) -> str:
    name = _name(kind, ranges)
    chain.ranges[name] = ranges
    return name


def _name(kind: str, content: object) -> str:
    return f"{kind}_{hashlib.sha256(repr(content).encode()).hexdigest()[:20]}"


# Rules of nf_tables.


def member_spec(members: MemberSet) -> SetSpec:
    return SetSpec((batch.IPV4,)) if isinstance(members, PeerAddresses) else _EXACT


def encoded_chains(
    chain: PolicyChain, way_out: WayOutAddress | None
) -> Iterator[tuple[str, RuleChain]]:
    """Yield the chains of a policy and their rules. A packet that none of them accepts goes on to
    the next policy of the pod.

    Packets on a way out in user space have another destination than the pod gave them. A second
    chain compares the destination that the connection had before.
    """
    aside: list[Rule] = []
    if way_out is not None and chain.direction == EGRESS:
        outside = f"{chain.name}_out"
        yield (
            outside,
            RuleChain(tuple(_encoded_outside(each) for each in chain.matches if not each.exact)),
        )
        aside = [rule(each, expressions.goto(outside)) for each in way_out.matches()]
    rules = (_encoded(chain.direction, each) for each in chain.matches)
    yield chain.name, RuleChain((*aside, *rules))


def _encoded_outside(match: PacketMatch) -> Rule:
    """Return the rule for packets to the outside. No pod is there, so ports have no names."""
    parts = []
    if match.addresses:
        load = expressions.load_original_destination(_ADDRESS)
        parts.append(load + expressions.is_in_set(match.addresses, _ADDRESS))
    if match.protocol:
        parts.append(expressions.is_protocol(ruleset.PROTOCOLS[match.protocol]))
    if match.ports:
        load_port = expressions.load_original_destination_port(_ADDRESS)
        parts.append(load_port + expressions.is_in_set(match.ports, _ADDRESS))
    return rule(*parts, expressions.accept())


def _encoded(direction: str, match: PacketMatch) -> Rule:
    parts = []
    if match.addresses:
        load = expressions.load_source if direction == INGRESS else expressions.load_destination
        parts.append(load(_ADDRESS) + expressions.is_in_set(match.addresses, _ADDRESS))
    if match.protocol:
        parts.append(expressions.is_protocol(ruleset.PROTOCOLS[match.protocol]))
    if match.ports:
        load_port = expressions.load_destination_port(_ADDRESS)
        parts.append(load_port + expressions.is_in_set(match.ports, _ADDRESS))
    if match.exact:
        parts.append(ruleset.load_key() + expressions.is_in_set(match.exact, _ADDRESS))
    return rule(*parts, expressions.accept())


def pod_chain(policies: Iterable[str]) -> tuple[str, RuleChain]:
    """Return the chain of pods that these policies select: what none of them accepts is dropped."""
    ordered = sorted(set(policies))
    jumps = (rule(expressions.jump(each)) for each in ordered)
    return _name("pods", ordered), RuleChain((*jumps, rule(expressions.drop())))


def base_chains() -> dict[str, RuleChain]:
    """Return the chains that packets enter by themselves. A packet between two isolated pods must
    pass both directions: `accept` ends one of these chains only.

    There is none for packets that programs of the machine send, so probes always reach their pods.
    """
    egress, ingress = _base(EGRESS), _base(INGRESS)
    return {
        "egress_forward": RuleChain(egress, ChainHook("filter", FORWARD, _PRIORITY)),
        "egress_input": RuleChain(egress, ChainHook("filter", INPUT, _PRIORITY)),
        "ingress_forward": RuleChain(ingress, ChainHook("filter", FORWARD, _PRIORITY + 1)),
    }


def _base(direction: str) -> tuple[Rule, ...]:
    load = expressions.load_destination if direction == INGRESS else expressions.load_source
    pair = expressions.load_source(_ADDRESS) + expressions.load_destination(_ADDRESS + 1)
    find = expressions.lookup(ISOLATION[direction], _ADDRESS, expressions.VERDICT)
    return (
        # Only answers pass unseen. Packets of the side that opened a connection are compared with
        # the policies of now, so that a connection ends when it is no longer allowed.
        rule(expressions.is_answer(), expressions.accept()),
        rule(expressions.is_related(), expressions.accept()),
        rule(pair, expressions.is_in_set(OWN, _ADDRESS), expressions.accept()),
        rule(load(_ADDRESS), find),
    )


def base_sets() -> dict[str, SetSpec]:
    isolation = SetSpec((batch.IPV4,), (batch.VERDICT,))
    return {
        **dict.fromkeys(ISOLATION.values(), isolation),
        OWN: SetSpec((batch.IPV4, batch.IPV4)),
    }
