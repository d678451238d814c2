"""Names of chains and sets stand for their content."""

from typing import Any

import msgspec

from kedge.node.policies.compiled_policy import compile_policy
from kedge.node.policies.policy_chains import PolicyChain, pod_chain, policy_chains
from kedge.node.policies.policy_objects import NetworkPolicy


def ingress(namespace: str, *rules: Any) -> PolicyChain:
    document = {"metadata": {"namespace": namespace}, "spec": {"ingress": list(rules)}}
    return policy_chains(compile_policy(msgspec.convert(document, NetworkPolicy)))["Ingress"]


def test_equal_policies_share_their_chain_and_others_do_not() -> None:
    everybody: Any = {"from": [{"namespaceSelector": {}}]}
    own: Any = {"from": [{"podSelector": {}}]}
    assert ingress("x", everybody) == ingress("y", everybody)
    assert ingress("x", own).name != ingress("y", own).name


def test_a_rule_has_one_match_per_kind_of_peer_and_protocol() -> None:
    peers = [{"podSelector": {}}, {"ipBlock": {"cidr": "10.0.0.0/8"}}]
    ports = [{"port": 80}, {"port": 81}, {"port": 53, "protocol": "UDP"}, {"port": "www"}]
    chain = ingress("x", {"from": peers, "ports": ports})
    assert len(chain.matches) == 2 * 3
    assert sorted(name.partition("_")[0] for name in chain.ranges) == ["blocks", "ports", "ports"]


def test_the_chain_of_pods_does_not_depend_on_the_order_of_policies() -> None:
    assert pod_chain(["a", "b", "a"]) == pod_chain(["b", "a"])
    name, chain = pod_chain([])
    assert name.startswith("pods_")
    assert len(chain.rules) == 1
