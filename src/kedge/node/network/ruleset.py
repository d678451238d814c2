"""The rules of a node's nf_tables table that do not depend on Services.

Chains, in the order in which a packet meets them:

- `guard` drops packets of pods to 127.0.0.0/8, because `route_localnet` lets them in;
- `check` refuses connections to service ports without endpoints, before their destination changes;
- `services` and `outside` change the destination of new connections;
- `unanswered` refuses connections to addresses of the service range that no Service has;
- `postrouting` hides the source address where answers would not find back.

Several nodes and clusters share the hooks of one machine. A table handles packets of its own
bridge, and packets to its own gateway address. Packets of the machine's processes and from outside
belong to one table of the machine, the one with the chain `machine`.
"""

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Address, IPv4Network
from typing import Final, NamedTuple

from kedge.node.network.nftables import batch, expressions
from kedge.node.network.nftables.batch import (
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
_HAIRPIN: Final = "hairpin"
_SERVER_CLIENTS: Final = "server_clients"
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
}


class RuleChain(NamedTuple):
    """A chain and its rules; with a hook, packets enter it by themselves."""

    rules: tuple[Rule, ...]
    hook: ChainHook | None = None


class Ruleset(NamedTuple):
    """Sets, chains and elements of one table."""

    sets: Mapping[str, SetSpec]
    chains: Mapping[str, RuleChain]
    elements: Mapping[str, Mapping[bytes, bytes]]


EMPTY: Final = Ruleset({}, {}, {})


class ServerLimit(NamedTuple):
    """How many connections one pod may have to the API server."""

    address: IPv4Address
    port: int
    connections: int


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
    """None if the kernel cannot count connections."""


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
    return made


def base(scope: TableScope, host_ports: Mapping[bytes, bytes]) -> Ruleset:
    """Return everything of the table but Services."""
    chains = {name: RuleChain(tuple(rules), hook) for name, hook, rules in _chains(scope)}
    if scope.owns_machine:
        chains[MACHINE] = RuleChain(())
    sets = dict(_SETS)
    if scope.server_limit is not None:
        sets[_SERVER_CLIENTS] = SetSpec((batch.IPV4,), counts_connections=True)
    hairpin = {host.packed * 2: b"" for host in scope.network.hosts()}
    return Ruleset(sets, chains, {_HAIRPIN: hairpin, HOST_PORTS: host_ports})


def _chains(scope: TableScope) -> Iterator[tuple[str, ChainHook | None, list[Rule]]]:
    yield REFUSE, None, _refuse()
    yield "check", None, [*_limit(scope.server_limit), *_check()]
    yield "to_services", None, list(_both_keys(SERVICES))
    yield "from_outside", None, [*_both_keys(OUTSIDE), rule(expressions.goto("to_services"))]
    guarded = expressions.is_input(scope.link) + expressions.is_to(LOOPBACK)
    yield (
        "guard",
        ChainHook("filter", PREROUTING, _FIRST),
        [rule(guarded, expressions.drop())],
    )
    yield (
        "check_prerouting",
        ChainHook("filter", PREROUTING, _BEFORE_TRANSLATION),
        _from(scope, "check"),
    )
    yield "prerouting", ChainHook("nat", PREROUTING, _TRANSLATION), _prerouting(scope)
    yield "output", ChainHook("nat", OUTPUT, _TRANSLATION), _output(scope)
    yield "postrouting", ChainHook("nat", POSTROUTING, _SOURCE), _postrouting(scope)
    unanswered = [
        rule(expressions.is_to(each), expressions.goto(REFUSE)) for each in scope.services
    ]
    yield "unanswered", None, unanswered
    after = ChainHook("filter", PREROUTING, _AFTER_TRANSLATION)
    yield "unanswered_prerouting", after, _from(scope, "unanswered")
    if scope.owns_machine:
        before = ChainHook("filter", OUTPUT, _BEFORE_TRANSLATION)
        yield "check_output", before, [rule(expressions.goto("check"))]
        after = ChainHook("filter", OUTPUT, _AFTER_TRANSLATION)
        yield "unanswered_output", after, [rule(expressions.goto("unanswered"))]


def _refuse() -> list[Rule]:
    return [
        rule(expressions.is_protocol(PROTOCOLS["TCP"]), expressions.refuse_tcp()),
        rule(expressions.refuse()),
    ]


def _limit(limit: ServerLimit | None) -> Iterator[Rule]:
    if limit is None:
        return
    server = expressions.is_protocol(PROTOCOLS["TCP"]) + expressions.is_to_address(limit.address)
    server += expressions.is_to_port(limit.port) + expressions.load_source(ADDRESS)
    over = expressions.has_more_connections(_SERVER_CLIENTS, ADDRESS, limit.connections)
    yield rule(expressions.is_new(), server, over, expressions.goto(REFUSE))


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
    inside = rule(expressions.is_input(scope.link), expressions.goto("to_services"))
    outside = expressions.is_not_input_of(scope.links)
    if not scope.owns_machine:
        outside += expressions.is_to_address(scope.gateway)
    return [*_host_ports(), inside, rule(outside, expressions.goto("from_outside"))]


def _output(scope: TableScope) -> list[Rule]:
    go = expressions.goto("to_services")
    rules = [*_host_ports(), rule(expressions.is_to_address(scope.gateway), go)]
    if scope.owns_machine:
        # The gateways of other nodes belong to the tables of these nodes.
        rules.append(rule(expressions.is_not_to(scope.pods), go))
    return rules


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
    from_loopback = expressions.is_from(LOOPBACK) + expressions.is_output(scope.link)
    return [
        rule(expressions.is_translated(), hairpin, hide),
        rule(marked, hide),
        rule(outgoing, hide),
        rule(from_loopback, hide),
    ]


def _load_port() -> bytes:
    return expressions.load_protocol(PROTOCOL) + expressions.load_destination_port(PORT)
