"""The rules of a node's nf_tables table that do not depend on Services.

Chains, in the order in which a packet meets them:

- `tunnel` drops packets in tunnels that do not come from a peer, or not from its pods;
- `guard` drops packets of pods to 127.0.0.0/8, because `route_localnet` lets them in, those with
  addresses that are not of pods of this node, and packets from outside that claim to come from pods
  without a route of ours;
- `check` refuses connections to service ports without endpoints, before their destination changes;
- `services` and `outside` change the destination of new connections;
- `limits` bounds what one pod may ask of the API server and of the DNS server, by whatever address
  it reaches them;
- `unanswered` refuses connections to addresses of the service range that no Service has;
- `postrouting` hides the source address where answers would not find back;
- `redirects` drops the kernel's advice to pods to send to each other directly.

Several nodes and clusters share the hooks of one machine. A table handles packets of its own
bridge, and packets to its own gateway address. Packets of the machine's processes and from outside
belong to one table of the machine, the one with the chain `machine`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network
from typing import Final, NamedTuple

from kedge.node.network import tunnel
from kedge.node.network.nftables import batch, expressions
from kedge.node.network.nftables.batch import (
    INPUT,
    OUTPUT,
    POSTROUTING,
    PREROUTING,
    Batch,
    ChainHook,
    SetSpec,
)
from kedge.node.network.nftables.expressions import Rule, rule

SERVICES, ENDPOINTS, OUTSIDE, REFUSED = "services", "endpoints", "outside", "refused"
"""Maps that Services fill."""
HOST_PORTS: Final = "host_ports"
UPLINK: Final = "kuplink"
"""The link to a program that carries packets to the outside (kedge.node.network.uplink). Packets to
the outside take it while a route leads to it."""
TUNNEL_PEERS, ROUTED_PEERS = "tunnel_peers", "routed_peers"
"""Sets of nodes of other machines: machine and pod network, and pod network alone."""
_HAIRPIN: Final = "hairpin"
_SERVER_CLIENTS: Final = "server_clients"
_OUTSIDE_CLIENTS: Final = "outside_clients_"
"""The sets that count the connections of each pod to the outside, by protocol."""
_FROM_PODS, _FROM_MACHINE = "from_pods", "from_machine"
_QUERYING: Final = "querying"
_QUERYING_SECONDS: Final = 60
"""Seconds without a query after which a pod's rate is forgotten."""
MACHINE: Final = "machine"
"""The chain that marks the one table of a machine that handles packets from outside."""
REFUSE: Final = "refuse"
MASQUERADE_MARK: Final = 0x4000
"""The bit that kube-proxy also uses."""
LOOPBACK: Final = IPv4Network("127.0.0.0/8")
ANY_ADDRESS: Final = IPv4Address(0)
"""The address of node ports in keys: every address of the machine."""

ADDRESS, PROTOCOL, PORT, INDEX = 8, 9, 10, 11
"""Registers of a key."""
TARGET, TARGET_PORT = 12, 13
"""Registers of the new destination."""
PROTOCOLS: Final = {"TCP": 6, "UDP": 17, "SCTP": 132}

_ICMP, _ICMP_REDIRECT = 1, b"\x05"
_CARRIED: Final = ("TCP", "UDP")

_BEFORE_TRANSLATION, _TRANSLATION, _AFTER_TRANSLATION = -110, -100, -90
_FIRST, _SOURCE = -300, 100
_KEY: Final = (batch.IPV4, batch.PROTOCOL, batch.PORT)
_SETS: Final = {
    SERVICES: SetSpec(_KEY, (batch.VERDICT,)),
    OUTSIDE: SetSpec(_KEY, (batch.VERDICT,)),
    REFUSED: SetSpec(_KEY, (batch.VERDICT,)),
    ENDPOINTS: SetSpec((*_KEY, batch.MARK), (batch.IPV4, batch.PORT)),
    HOST_PORTS: SetSpec(_KEY, (batch.IPV4, batch.PORT)),
    _HAIRPIN: SetSpec((batch.IPV4, batch.IPV4)),
    TUNNEL_PEERS: SetSpec((batch.IPV4, batch.IPV4)),
    ROUTED_PEERS: SetSpec((batch.IPV4,)),
}


class RuleChain(NamedTuple):
    """A chain and its rules; with a hook, packets enter it by themselves."""

    rules: tuple[Rule, ...]
    hook: ChainHook | None = None


class RangeElements(NamedTuple):
    """The elements of a set of ranges."""

    size: int
    """The bytes of a number."""
    ranges: Sequence[tuple[int, int]]


class Ruleset(NamedTuple):
    """Sets, chains and elements of one table."""

    sets: Mapping[str, SetSpec]
    chains: Mapping[str, RuleChain]
    elements: Mapping[str, Mapping[bytes, bytes]]
    ranges: Mapping[str, RangeElements] = {}


EMPTY: Final = Ruleset({}, {}, {})


class ServerLimit(NamedTuple):
    """How many connections one pod may have to the API server."""

    address: IPv4Address
    """Where it listens. If that is this machine, all addresses of the machine count."""
    port: int
    connections: int


class WayOutPorts(NamedTuple):
    """The ports at the gateway address that carry connections to the outside in user space
    (kedge.node.network.way_out)."""

    tcp: int
    udp: int
    server: int
    """The port that leads to the API server."""


class WayOutAddress(NamedTuple):
    """Where connections to the outside are sent to."""

    gateway: IPv4Address
    ports: WayOutPorts

    def matches(self) -> Iterator[bytes]:
        """Yield the matches of packets that are on the way out."""
        for protocol, port in (("TCP", self.ports.tcp), ("UDP", self.ports.udp)):
            here = expressions.is_to_address(self.gateway) + expressions.is_to_port(port)
            yield expressions.is_protocol(PROTOCOLS[protocol]) + here


class QueryLimit(NamedTuple):
    """How many datagrams one pod may send to the DNS server of this machine."""

    port: int
    per_second: int
    burst: int


class TableScope(NamedTuple):
    """The packets that a table is responsible for."""

    link: str
    """The bridge of the node, and the name of the table."""
    links: str
    """How the names of all bridges of this machine begin."""
    network: IPv4Network
    gateway: IPv4Address
    pods: IPv4Network
    """The networks of all nodes: their addresses are never hidden from pods."""
    services: tuple[IPv4Network, ...]
    """The networks of cluster IPs and load balancers, which are nowhere but in these rules."""
    owns_machine: bool
    """Whether packets of the machine's processes and from outside belong to this table."""
    server_limit: ServerLimit | None = None
    """None if the kernel cannot count connections, or the server is not known yet."""
    query_limit: QueryLimit | None = None
    way_out: WayOutPorts | None = None
    """None if the machine's routes lead outside."""


def key(address: IPv4Address, protocol: str, port: int) -> bytes:
    """Return the key of a service port."""
    fields = (address.packed, bytes([PROTOCOLS[protocol]]), port.to_bytes(2, "big"))
    return expressions.key(fields)


def target(address: IPv4Address, port: int) -> bytes:
    """Return the data of an element that holds a destination."""
    return batch.value(expressions.key((address.packed, port.to_bytes(2, "big"))))


def load_key() -> bytes:
    return expressions.load_destination(ADDRESS) + _load_port()


def load_node_port_key() -> bytes:
    return expressions.immediate(ADDRESS, ANY_ADDRESS.packed) + _load_port()


def translate() -> bytes:
    return expressions.translate_destination(TARGET, TARGET_PORT)


def replacement(table: str, flags: int, parts: Iterable[Ruleset], *, replaces: bool) -> Batch:
    """Return the batch that writes a whole table in place of the previous one."""
    made = Batch(table)
    if replaces:
        made.delete_table()
    made.add_table(flags)
    all_parts = list(parts)
    for part in all_parts:
        for name, spec in part.sets.items():
            made.add_set(name, spec)
        for name, chain in part.chains.items():
            made.add_chain(name, chain.hook)
    for part in all_parts:
        for name, chain in part.chains.items():
            made.add_rules(name, chain.rules)
        for name, elements in part.elements.items():
            made.add_elements(name, elements)
        for name, ranges in part.ranges.items():
            made.add_ranges(name, *ranges)
    return made


def base(scope: TableScope, elements: Mapping[str, Mapping[bytes, bytes]]) -> Ruleset:
    """Return everything of the table but Services. The elements are those of host ports and
    peers."""
    chains = {name: RuleChain(tuple(rules), hook) for name, hook, rules in _chains(scope)}
    if scope.owns_machine:
        chains[MACHINE] = RuleChain(())
    sets = dict(_SETS)
    if scope.server_limit is not None:
        counting = SetSpec((batch.IPV4,), counts_connections=True)
        sets[_SERVER_CLIENTS] = counting
        if scope.way_out is not None:
            sets |= dict.fromkeys((_OUTSIDE_CLIENTS + each for each in _CARRIED), counting)
    if scope.query_limit is not None:
        sets[_QUERYING] = SetSpec((batch.IPV4,), timeout_seconds=_QUERYING_SECONDS)
    hairpin = {host.packed * 2: b"" for host in scope.network.hosts()}
    return Ruleset(sets, chains, {_HAIRPIN: hairpin, **elements})


def _chains(scope: TableScope) -> Iterator[tuple[str, ChainHook | None, list[Rule]]]:
    yield REFUSE, None, _refuse()
    yield "check", None, _check()
    yield "to_services", None, [*_both_keys(SERVICES)]
    if scope.way_out is not None:
        yield "to_outside", None, [*_to_outside(scope, scope.way_out)]
        yield _FROM_PODS, None, _from_here(expressions.is_routed_by(UPLINK))
        yield _FROM_MACHINE, None, _from_here(expressions.is_output(UPLINK))
    yield "from_outside", None, [*_both_keys(OUTSIDE), rule(expressions.goto("to_services"))]
    yield "tunnel", ChainHook("filter", INPUT, _FIRST), _tunnel(scope)
    yield "from_pods_elsewhere", None, _from_pods_elsewhere(scope)
    yield "guard", ChainHook("filter", PREROUTING, _FIRST), _guard(scope)
    yield (
        "check_prerouting",
        ChainHook("filter", PREROUTING, _BEFORE_TRANSLATION),
        _from(scope, "check"),
    )
    yield "prerouting", ChainHook("nat", PREROUTING, _TRANSLATION), _prerouting(scope)
    yield "output", ChainHook("nat", OUTPUT, _TRANSLATION), _output(scope)
    yield "postrouting", ChainHook("nat", POSTROUTING, _SOURCE), _postrouting(scope)
    yield "redirects", ChainHook("filter", OUTPUT, _FIRST), [_drop_redirects(scope)]
    unanswered = [
        rule(expressions.is_to(each), expressions.goto(REFUSE)) for each in scope.services
    ]
    yield "unanswered", None, unanswered
    after = ChainHook("filter", PREROUTING, _AFTER_TRANSLATION)
    limits = [*_limit_connections(scope.server_limit), *_limit_queries(scope.query_limit)]
    if scope.way_out is not None and scope.server_limit is not None:
        limits += _limit_uplink(scope.server_limit.connections)
    yield "limits", None, limits
    own = rule(expressions.is_input(scope.link), expressions.goto("limits"))
    yield "limits_prerouting", after, [own]
    yield "unanswered_prerouting", after, _from(scope, "unanswered")
    if scope.owns_machine:
        before = ChainHook("filter", OUTPUT, _BEFORE_TRANSLATION)
        yield "check_output", before, [rule(expressions.goto("check"))]
        after = ChainHook("filter", OUTPUT, _AFTER_TRANSLATION)
        yield "unanswered_output", after, [rule(expressions.goto("unanswered"))]


def _drop_redirects(scope: TableScope) -> Rule:
    """Drop ICMP redirects to pods. A packet from one pod to another leaves by the link by which it
    came, so the kernel advises the sender to take the direct way, which `guard` of the bridge
    closes. The switch `send_redirects` of the link does not help where that of the machine is on:
    the kernel sends redirects if either is."""
    is_redirect = expressions.is_protocol(_ICMP) + expressions.has_wrapped(0, _ICMP_REDIRECT)
    return rule(expressions.is_output(scope.link), is_redirect, expressions.drop())


def _from_here(is_by_uplink: bytes) -> list[Rule]:
    """Send new connections of pods or of the node's processes to Services, by an uplink or to the
    forwarder."""
    return [
        rule(expressions.jump("to_services")),
        rule(is_by_uplink, expressions.accept()),
        rule(expressions.goto("to_outside")),
    ]


def _to_outside(scope: TableScope, forwarder: WayOutPorts) -> Iterator[Rule]:
    """Send connections to the outside to the sockets of the forwarder."""
    yield rule(expressions.is_to_this_machine(), expressions.accept())
    for network in (scope.pods, *scope.services):
        yield rule(expressions.is_to(network), expressions.accept())
    for protocol, port in (("TCP", forwarder.tcp), ("UDP", forwarder.udp)):
        there = expressions.immediate(TARGET, scope.gateway.packed)
        there += expressions.immediate(TARGET_PORT, port.to_bytes(2, "big"))
        yield rule(expressions.is_protocol(PROTOCOLS[protocol]), there, translate())


def _guard(scope: TableScope) -> list[Rule]:
    inside = expressions.is_input(scope.link)
    outside = expressions.is_not_input_of(scope.links) + expressions.is_not_input("lo")
    # The chain `tunnel` has checked packets that come out of a tunnel.
    outside += expressions.is_not_input_of(tunnel.LINKS)
    of_pods = expressions.is_from(scope.pods) + expressions.is_to(scope.network)
    return [
        rule(inside, expressions.is_to(LOOPBACK), expressions.drop()),
        rule(inside, expressions.is_not_from(scope.network), expressions.drop()),
        rule(outside, of_pods, expressions.goto("from_pods_elsewhere")),
    ]


def _from_pods_elsewhere(scope: TableScope) -> list[Rule]:
    sender = expressions.load_source(ADDRESS)
    sender += expressions.mask(ADDRESS, scope.network.netmask.packed)
    known = expressions.is_in_set(ROUTED_PEERS, ADDRESS)
    return [rule(sender, known, expressions.accept()), rule(expressions.drop())]


def _tunnel(scope: TableScope) -> list[Rule]:
    """Accept what a peer's machine sends from that peer's pods to pods of this node. The packet is
    still wrapped: once it is unwrapped, its sender is no longer known."""
    number = tunnel.number(scope.network).to_bytes(3, "big")
    ours = expressions.is_protocol(tunnel.UDP) + expressions.is_to_port(tunnel.PORT)
    ours += expressions.has_wrapped(tunnel.NUMBER_AT, number)
    inside = expressions.has_wrapped(tunnel.TYPE_AT, tunnel.IPV4)
    inside += expressions.has_wrapped_address(tunnel.DESTINATION_AT, scope.network)
    sender = expressions.load_source(ADDRESS)
    sender += expressions.load_wrapped(ADDRESS + 1, tunnel.SOURCE_AT, 4)
    sender += expressions.mask(ADDRESS + 1, scope.network.netmask.packed)
    known = expressions.is_in_set(TUNNEL_PEERS, ADDRESS)
    return [rule(ours, inside, sender, known, expressions.accept()), rule(ours, expressions.drop())]


def tunnel_peer(machine: IPv4Address, network: IPv4Network) -> bytes:
    """Return the element of a peer in TUNNEL_PEERS."""
    return expressions.key((machine.packed, network.network_address.packed))


def routed_peer(network: IPv4Network) -> bytes:
    """Return the element of a peer in ROUTED_PEERS."""
    return network.network_address.packed


def _refuse() -> list[Rule]:
    return [
        rule(expressions.is_protocol(PROTOCOLS["TCP"]), expressions.refuse_tcp()),
        rule(expressions.refuse()),
    ]


def _limit_connections(limit: ServerLimit | None) -> Iterator[Rule]:
    """Count by the address that the server has, so that no other way to it is unlimited."""
    if limit is None:
        return
    to_port = expressions.is_protocol(PROTOCOLS["TCP"]) + expressions.is_to_port(limit.port)
    over = expressions.load_source(ADDRESS)
    over += expressions.has_more_connections(_SERVER_CLIENTS, ADDRESS, limit.connections)
    elsewhere = expressions.is_to_address(limit.address) + expressions.is_not_to_this_machine()
    for there in (expressions.is_to_this_machine(), elsewhere):
        yield rule(expressions.is_new(), to_port, there, over, expressions.goto(REFUSE))


def _limit_uplink(connections: int) -> Iterator[Rule]:
    """Each connection takes a descriptor of the program, so a pod has as many as the forwarder
    would give it."""
    for protocol in _CARRIED:
        over = expressions.load_source(ADDRESS)
        counted = _OUTSIDE_CLIENTS + protocol
        over += expressions.has_more_connections(counted, ADDRESS, connections)
        there = expressions.is_protocol(PROTOCOLS[protocol]) + expressions.is_routed_by(UPLINK)
        yield rule(expressions.is_new(), there, over, expressions.goto(REFUSE))


def _limit_queries(limit: QueryLimit | None) -> Iterator[Rule]:
    """Drop queries of a pod that asks too fast before they take the room of others'."""
    if limit is None:
        return
    to_port = expressions.is_protocol(PROTOCOLS["UDP"]) + expressions.is_to_port(limit.port)
    faster = expressions.load_source(ADDRESS)
    faster += expressions.comes_faster(_QUERYING, ADDRESS, limit.per_second, limit.burst)
    yield rule(to_port, expressions.is_to_this_machine(), faster, expressions.drop())


def _check() -> list[Rule]:
    return [rule(expressions.is_new(), each) for each in _lookups(REFUSED)]


def _both_keys(name: str) -> Iterator[Rule]:
    return (rule(each) for each in _lookups(name))


def _lookups(name: str) -> tuple[bytes, bytes]:
    """The lookups of a service port: by its address, and as a node port."""
    find = expressions.lookup(name, ADDRESS, expressions.VERDICT)
    here = expressions.is_to_this_machine()
    return load_key() + find, here + load_node_port_key() + find


def _from(scope: TableScope, chain: str) -> list[Rule]:
    """Send packets of the own bridge to a chain; also those from outside, if they belong here."""
    go = expressions.goto(chain)
    rules = [rule(expressions.is_input(scope.link), go)]
    outside = expressions.is_not_input_of(scope.links)
    if scope.owns_machine:
        return [*rules, rule(outside, go)]
    return [*rules, rule(outside, expressions.is_to_address(scope.gateway), go)]


def _prerouting(scope: TableScope) -> list[Rule]:
    inside = rule(expressions.is_input(scope.link), expressions.goto(_start(scope, _FROM_PODS)))
    outside = expressions.is_not_input_of(scope.links)
    if not scope.owns_machine:
        outside += expressions.is_to_address(scope.gateway)
    return [*_host_ports(), inside, rule(outside, expressions.goto("from_outside"))]


def _output(scope: TableScope) -> list[Rule]:
    go = expressions.goto("to_services")
    rules = [*_host_ports(), rule(expressions.is_to_address(scope.gateway), go)]
    if scope.owns_machine:
        # The gateways of other nodes belong to the tables of these nodes.
        own = expressions.goto(_start(scope, _FROM_MACHINE))
        rules.append(rule(expressions.is_not_to(scope.pods), own))
    return rules


def _start(scope: TableScope, chain: str) -> str:
    """Return the first chain of new connections: if the machine's routes lead outside, only those
    to Services are changed."""
    return "to_services" if scope.way_out is None else chain


def _host_ports() -> Iterator[Rule]:
    find = expressions.lookup(HOST_PORTS, ADDRESS, TARGET) + translate()
    yield rule(load_key(), find)
    yield rule(expressions.is_to_this_machine(), load_node_port_key(), find)


def _postrouting(scope: TableScope) -> list[Rule]:
    hide = expressions.masquerade()
    load_pair = expressions.load_source(ADDRESS) + expressions.load_destination(ADDRESS + 1)
    hairpin = load_pair + expressions.is_in_set(_HAIRPIN, ADDRESS)
    marked = expressions.is_marked(MASQUERADE_MARK) + expressions.clear_mark(MASQUERADE_MARK)
    outgoing = expressions.is_from(scope.network) + expressions.is_not_to(scope.pods)
    # Only new connections: a refusal by the rules above has the translated address as its source.
    from_loopback = expressions.is_new() + expressions.is_from(LOOPBACK)
    from_loopback += expressions.is_output(scope.link)
    return [
        rule(expressions.is_translated(), hairpin, hide),
        rule(marked, hide),
        rule(outgoing, hide),
        rule(from_loopback, hide),
    ]


def _load_port() -> bytes:
    return expressions.load_protocol(PROTOCOL) + expressions.load_destination_port(PORT)
