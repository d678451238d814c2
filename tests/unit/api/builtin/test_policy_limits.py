"""Warnings about policies that are larger than what nodes enforce."""

from typing import Any

from kedge.api.builtin.policy_limits import MOST_ENTRIES, MOST_RULES, MOST_SELECTORS
from kedge.api.builtin.resources import RESOURCES


def warnings(**spec: Any) -> list[str]:
    policies = next(each for each in RESOURCES if each.kind == "NetworkPolicy")
    return list(policies.strategy.warnings(policies.from_document({"spec": spec})))


def test_ordinary_policies_get_no_warning() -> None:
    assert warnings(podSelector={}, ingress=[{"from": [{"podSelector": {}}]}]) == []


def test_each_limit_has_its_warning() -> None:
    (told,) = warnings(ingress=[{}] * (MOST_RULES + 1))
    assert told.startswith("spec.ingress: of rules with different ports, nodes enforce 500;")
    (told,) = warnings(egress=[{"to": [{"podSelector": {}}] * (MOST_SELECTORS + 1)}])
    assert told.startswith("spec.egress[0].to: of different selectors, nodes enforce 2,000;")
    blocks = [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/9"] * MOST_ENTRIES}}]
    (told,) = warnings(ingress=[{"from": blocks}])
    assert "the first 20,000" in told
