"""Which packets a table handles."""

from ipaddress import IPv4Address, IPv4Network

from kedge.node.network import ruleset
from kedge.node.network.nftables import expressions
from kedge.node.network.nftables.attributes import read_messages
from kedge.node.network.ruleset import TableScope

SCOPE = TableScope(
    link="kbr1",
    links="kbr",
    network=IPv4Network("10.244.1.0/24"),
    gateway=IPv4Address("10.244.1.1"),
    pods=IPv4Network("10.244.0.0/16"),
    services=(IPv4Network("10.96.0.0/16"),),
    owns_machine=True,
)


def test_only_the_owner_sees_packets_of_the_machine_and_from_outside() -> None:
    owner = ruleset.base(SCOPE, {}).chains
    other = ruleset.base(SCOPE._replace(owns_machine=False), {}).chains
    assert owner.keys() - other.keys() == {"machine", "check_output", "unanswered_output"}
    own_gateway = expressions.is_to_address(SCOPE.gateway)
    outside = expressions.is_not_input_of("kbr")
    for name in ("prerouting", "check_prerouting", "unanswered_prerouting"):
        assert any(outside + own_gateway in rule for rule in other[name].rules)
        assert not any(outside + own_gateway in rule for rule in owner[name].rules)


def test_advice_to_pods_to_send_to_each_other_directly_is_dropped() -> None:
    (dropped,) = ruleset.base(SCOPE, {}).chains["redirects"].rules
    assert expressions.is_output(SCOPE.link) in dropped
    assert expressions.drop() in dropped


def test_pods_of_other_nodes_see_the_address_of_a_pod() -> None:
    rules = ruleset.base(SCOPE, {}).chains["postrouting"].rules
    own, not_pods = expressions.is_from(SCOPE.network), expressions.is_not_to(SCOPE.pods)
    assert any(own + not_pods in rule for rule in rules)


def test_every_pod_may_reach_itself() -> None:
    hairpin = ruleset.base(SCOPE, {}).elements["hairpin"]
    assert IPv4Address("10.244.1.7").packed * 2 in hairpin
    assert len(hairpin) == 254


def test_keys_and_targets_have_padded_fields() -> None:
    key = ruleset.key(IPv4Address("10.96.0.1"), "UDP", 53)
    assert key == bytes([10, 96, 0, 1, 17, 0, 0, 0, 0, 53, 0, 0])
    assert ruleset.target(IPv4Address("10.244.1.2"), 80).endswith(
        bytes([10, 244, 1, 2, 0, 80, 0, 0])
    )


def test_a_replacement_declares_before_it_refers() -> None:
    made = ruleset.replacement("kbr1", 6, [ruleset.base(SCOPE, {})], replaces=True)
    kinds = [kind & 0xFF for kind, _, _ in read_messages(made.packed())][1:-1]
    assert kinds[:2] == [2, 0]
    last_declared = max(i for i, kind in enumerate(kinds) if kind in (3, 9))
    assert last_declared < min(i for i, kind in enumerate(kinds) if kind in (6, 12))
