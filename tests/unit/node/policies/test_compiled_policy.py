"""Policies made ready: merged rules, and limits that never allow more."""

from typing import Any

import msgspec

from kedge.api.builtin.policy_limits import MOST_ENTRIES, MOST_RULES, MOST_SELECTORS
from kedge.node.policies.compiled_policy import (
    AllowRule,
    CompiledPolicy,
    PeerGroup,
    PortGroup,
    compile_policy,
)
from kedge.node.policies.policy_objects import NetworkPolicy
from kedge.node.policies.ranges import Range


def compiled(**spec: Any) -> CompiledPolicy:
    document = {"metadata": {"namespace": "x"}, "spec": {"podSelector": {}, **spec}}
    return compile_policy(msgspec.convert(document, NetworkPolicy))


def block(cidr: str, *excepted: str) -> dict[str, Any]:
    return {"ipBlock": {"cidr": cidr, "except": list(excepted)}}


def test_rules_with_the_same_ports_become_one() -> None:
    rules = [{"from": [block(f"10.0.{i}.0/24")], "ports": [{"port": 80}]} for i in range(3)]
    (rule,) = compiled(ingress=rules).ingress or ()
    assert rule.peers is not None
    assert rule.peers.blocks == (Range(0x0A000000, 0x0A0002FF),)


def test_a_rule_that_allows_everything_is_enough() -> None:
    found = compiled(ingress=[{"ports": [{"port": 1}]}, {}, {"from": [block("10.0.0.0/8")]}])
    assert found.ingress == (AllowRule(None, None),)


def test_overlapping_ports_are_merged() -> None:
    ports = [{"port": 80, "endPort": 90}, {"port": 85, "endPort": 100}, {"port": 101}]
    (rule,) = compiled(ingress=[{"ports": ports}]).ingress or ()
    assert rule.ports == PortGroup((("TCP", (Range(80, 101),)),), ())


def test_a_block_with_too_many_exceptions_is_left_out_as_a_whole() -> None:
    excepted = [f"10.{i // 256}.{i % 256}.0/24" for i in range(MOST_ENTRIES)]
    found = compiled(ingress=[{"from": [block("10.0.0.0/8", *excepted)]}])
    assert found.ingress == (AllowRule(PeerGroup((), ()), None),)
    assert "more than 20,000" in found.excess


def test_ports_beyond_the_limit_do_not_turn_into_all_ports() -> None:
    many = [block(f"{i // 65536}.{i // 256 % 256}.{i % 256}.1/32") for i in range(MOST_ENTRIES)]
    found = compiled(ingress=[{"from": many}, {"ports": [{"port": 80}]}])
    assert found.ingress is not None
    assert found.ingress[1] == AllowRule(None, PortGroup((), ()))


def test_rules_and_selectors_are_limited() -> None:
    rules = [{"ports": [{"port": 1 + i}]} for i in range(MOST_RULES + 1)]
    found = compiled(ingress=rules)
    assert len(found.ingress or ()) == MOST_RULES
    assert "rules with different ports" in found.excess
    peers = [{"podSelector": {"matchLabels": {"app": str(i)}}} for i in range(MOST_SELECTORS + 1)]
    found = compiled(ingress=[{"from": peers}])
    (rule,) = found.ingress or ()
    assert rule.peers is not None
    assert len(rule.peers.selectors) == MOST_SELECTORS
    assert "different selectors" in found.excess
