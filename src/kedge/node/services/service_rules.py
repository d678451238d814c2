"""The sets, chains and map elements of one Service.

Without session affinity, a Service has no chain of its own. Its ports are elements of the map
`services`, whose verdict leads to a chain for the number of endpoints. That chain draws an index
and finds the endpoint in the map `endpoints`, by address, protocol, port and index. So a changed
endpoint is one changed element, whatever the number of Services.
"""

import hashlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network
from typing import Final, NamedTuple

from kedge.node.network import ruleset
from kedge.node.network.nftables import batch, expressions
from kedge.node.network.nftables.batch import SetSpec
from kedge.node.network.nftables.expressions import Rule, rule
from kedge.node.network.ruleset import ANY_ADDRESS, ENDPOINTS, OUTSIDE, REFUSED, SERVICES, RuleChain
from kedge.node.services.service_ports import CarriedPort, EndpointTarget

PINNED, CLUSTER, EXTERNAL = range(3)
"""Ranks of claims: an external IP cannot take the traffic of another Service's cluster IP."""
_LOCAL_INDEX: Final = 1 << 16
"""The index of the first local endpoint, where local ones are a list of their own."""


class ElementKey(NamedTuple):
    """An element of a map."""

    map: str
    key: bytes


class KeyClaim(NamedTuple):
    """All elements that a Service wants for one address, protocol and port. If several Services
    claim the same, the lowest rank gets it all."""

    rank: int
    elements: dict[ElementKey, bytes]


class ServiceRules(NamedTuple):
    """The rules that one Service adds to the table."""

    sets: dict[str, SetSpec]
    chains: dict[str, RuleChain]
    keys: dict[bytes, KeyClaim]

    def element(self, rank: int, name: str, key: bytes, data: bytes, index: bytes = b"") -> None:
        """Add an element to the claim of a key."""
        claim = self.keys.setdefault(key, KeyClaim(rank, {}))
        claim.elements[ElementKey(name, key + index)] = data


def service_rules(name: str, ports: Iterable[CarriedPort]) -> ServiceRules:
    """Return the rules of a Service; the name distinguishes its chains from those of others."""
    made = ServiceRules({}, {}, {})
    for port in ports:
        _add_port(made, name, port)
    return made


def pinned_rules(
    address: IPv4Address, protocol: str, port: int, target: EndpointTarget
) -> ServiceRules:
    """Return rules that send one service port to a program of the machine."""
    made = ServiceRules({}, {}, {})
    _add_address(made, PINNED, ruleset.key(address, protocol, port), [target])
    return made


def _add_port(made: ServiceRules, name: str, port: CarriedPort) -> None:
    choice = port.choice
    internal = choice.local if port.is_internal_local else choice.cluster
    affinity = _Affinity(made, name, port) if port.affinity_seconds else None
    for address in port.cluster_addresses:
        key = ruleset.key(address, port.protocol, port.port)
        if internal:
            chain = affinity.chain(internal, "") if affinity else ""
            _add_address(made, CLUSTER, key, internal, chain)
        else:
            _add_refusal(made, CLUSTER, key, is_elsewhere=bool(choice.cluster))
    for address, number in _external(port):
        key = ruleset.key(address, port.protocol, number)
        _add_external(made, affinity, port, key)
        if address in port.balancer_addresses and choice.cluster:
            _add_firewall(made, key, port.source_ranges)


def _external(port: CarriedPort) -> Iterator[tuple[IPv4Address, int]]:
    for address in port.external_addresses:
        yield address, port.port
    if port.node_port:
        yield ANY_ADDRESS, port.node_port


def _add_external(
    made: ServiceRules, affinity: "_Affinity | None", port: CarriedPort, key: bytes
) -> None:
    everywhere, local = port.choice
    if not everywhere:
        _add_refusal(made, EXTERNAL, key, is_elsewhere=False)
        return
    # As in kube-proxy, policy Local keeps the source address, and binds only traffic from outside.
    variant = "" if port.is_external_local else "external"
    chain = affinity.chain(everywhere, variant) if affinity else ""
    _add_address(made, EXTERNAL, key, everywhere, chain, variant)
    if not port.is_external_local:
        return
    if not local:
        made.element(EXTERNAL, OUTSIDE, key, expressions.drop_verdict())
        return
    chain = affinity.chain(local, "local") if affinity else ""
    _add_address(made, EXTERNAL, key, local, chain, "local")


def _add_firewall(made: ServiceRules, key: bytes, ranges: tuple[IPv4Network, ...] | None) -> None:
    """Let only clients of some networks in."""
    if ranges is None:
        return
    digest = hashlib.sha256(" ".join(map(str, ranges)).encode()).hexdigest()
    name = f"firewall_{digest[:12]}"
    permitted = [rule(expressions.is_from(each), expressions.accept()) for each in ranges]
    made.chains[name] = RuleChain((*permitted, rule(expressions.drop())))
    made.element(EXTERNAL, REFUSED, key, _goto(name))


def _add_refusal(made: ServiceRules, rank: int, key: bytes, *, is_elsewhere: bool) -> None:
    """Without endpoints, refuse. If only other nodes have some, drop, as in kube-proxy: the
    client tries again, perhaps at another node."""
    told = expressions.drop_verdict() if is_elsewhere else _goto(ruleset.REFUSE)
    made.element(rank, REFUSED, key, told)


def _add_address(
    made: ServiceRules,
    rank: int,
    key: bytes,
    targets: Sequence[EndpointTarget],
    chain: str = "",
    variant: str = "",
) -> None:
    """Send the connections of one key to some endpoints, by a chain of the Service or the one for
    their number."""
    place = OUTSIDE if variant == "local" else SERVICES
    if not chain:
        first = _LOCAL_INDEX if variant == "local" else 0
        is_node_port = key.startswith(ANY_ADDRESS.packed)
        chain = _choosing_chain(made, len(targets), variant, is_node_port=is_node_port)
        for index, target in enumerate(targets, first):
            number = index.to_bytes(4, sys.byteorder)
            made.element(rank, ENDPOINTS, key, ruleset.target(*target), number)
    made.element(rank, place, key, _goto(chain))


def _choosing_chain(made: ServiceRules, count: int, variant: str, *, is_node_port: bool) -> str:
    """Return the chain that chooses among so many endpoints; all Services share it."""
    kind = "node_port" if is_node_port else "service"
    name = "_".join(filter(None, (kind, str(count), variant)))
    load = ruleset.load_node_port_key() if is_node_port else ruleset.load_key()
    first = _LOCAL_INDEX if variant == "local" else 0
    marked = expressions.set_mark(ruleset.MASQUERADE_MARK) if variant == "external" else b""
    find = expressions.lookup(ENDPOINTS, ruleset.ADDRESS, ruleset.TARGET)
    draw = expressions.load_random(ruleset.INDEX, count, first)
    made.chains[name] = RuleChain((rule(marked, load, draw, find, ruleset.translate()),))
    return name


class _Affinity:
    """The chains of a service port with session affinity, in kube-proxy's shape: a set of clients
    and a chain for each endpoint."""

    def __init__(self, made: ServiceRules, service: str, port: CarriedPort) -> None:
        what = f"{service}/{port.protocol}/{port.name}/{port.port}"
        self._name = "affinity_" + hashlib.sha256(what.encode()).hexdigest()[:12]
        self._made = made
        self._seconds = port.affinity_seconds

    def chain(self, targets: Sequence[EndpointTarget], variant: str) -> str:
        """Return the chain that sends each client to its endpoint."""
        if variant == "external":
            name = f"{self._name}_external"
            mark = expressions.set_mark(ruleset.MASQUERADE_MARK)
            go = expressions.goto(self.chain(targets, ""))
            self._made.chains[name] = RuleChain((rule(mark, go),))
            return name
        name = "_".join(filter(None, (self._name, variant)))
        own = [self._endpoint(each) for each in targets]
        self._made.chains[name] = RuleChain((*map(_returning, own), *_drawn(own)))
        return name

    def _endpoint(self, target: EndpointTarget) -> str:
        # With the seconds, because the timeout of an existing set cannot be changed.
        name = f"{self._name}_{target.address}_{target.port}_{self._seconds}s"
        self._made.sets[name] = SetSpec((batch.IPV4,), timeout_seconds=self._seconds)
        remember = expressions.load_source(ruleset.ADDRESS)
        remember += expressions.update_set(name, ruleset.ADDRESS)
        there = expressions.immediate(ruleset.TARGET, target.address.packed)
        there += expressions.immediate(ruleset.TARGET_PORT, target.port.to_bytes(2, "big"))
        # In two rules: the first ends where the set is full, and the client is still served.
        self._made.chains[name] = RuleChain((rule(remember), rule(there, ruleset.translate())))
        return name


def _returning(endpoint: str) -> Rule:
    """Send a client that the endpoint knows there."""
    known = expressions.load_source(ruleset.ADDRESS)
    known += expressions.is_in_set(endpoint, ruleset.ADDRESS)
    return rule(known, expressions.goto(endpoint))


def _drawn(endpoints: Sequence[str]) -> Iterator[Rule]:
    """Send a new client to each endpoint with the same probability."""
    for index, each in enumerate(endpoints):
        yield rule(expressions.is_drawn(len(endpoints) - index), expressions.goto(each))


def _goto(chain: str) -> bytes:
    return expressions.goto_verdict(chain)
