"""What Deployments and their like refuse, and what they share."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kedge.api.apps_v1 import daemon_set, deployment, replica_set, stateful_set, workload
from kedge.api.model import LabelSelector, LabelSelectorRequirement
from kedge.api.resource import Resource
from kedge.testing.workloads import workload_document

RESOURCES: dict[str, Resource[Any]] = {
    each.RESOURCE.kind: each.RESOURCE
    for each in (deployment, replica_set, daemon_set, stateful_set)
}
TABLE = yaml.safe_load(Path(__file__).with_name("workloads.yaml").read_text())
CASES = [(kind, case) for kind, cases in TABLE.items() for case in cases]


@pytest.mark.parametrize(
    ("kind", "case"), CASES, ids=[f"{kind}: {case['case']}" for kind, case in CASES]
)
def test_every_error_is_told_at_once(kind: str, case: dict[str, Any]) -> None:
    resource = RESOURCES[kind]
    obj = resource.strategy.default(resource.from_document(workload_document(case["change"])))
    assert [str(error) for error in resource.strategy.validate(obj)] == case["errors"]


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "DaemonSet"])
def test_the_selector_cannot_change(kind: str) -> None:
    resource = RESOURCES[kind]
    change = {"spec": {"selector": {"matchLabels": {"app": "db"}}}}
    old = resource.strategy.default(resource.from_document(workload_document({})))
    new = resource.strategy.default(resource.from_document(workload_document(change)))
    assert list(resource.strategy.validate_update(old, old)) == []
    assert [str(error) for error in resource.strategy.validate_update(new, old)] == [
        'spec.selector: Invalid value: {"matchLabels":{"app":"db"}}: field is immutable'
    ]


def test_a_counter_of_collisions_only_rises() -> None:
    assert list(workload.validate_collisions(2, 1)) == []
    assert [str(error) for error in workload.validate_collisions(None, 1)] == [
        "status.collisionCount: Invalid value: 0: cannot be decremented"
    ]


def test_a_selector_is_shown_as_kubectl_takes_it() -> None:
    expression = LabelSelectorRequirement(key="tier", operator="In", values=["b", "a"])
    selector = LabelSelector(matchLabels={"app": "web"}, matchExpressions=[expression])
    assert workload.selector_cell(selector) == "app=web,tier in (a,b)"
    assert workload.selector_cell(None) == "<none>"


def test_a_list_is_the_same_as_a_tuple_on_the_wire() -> None:
    one = LabelSelectorRequirement(key="a", operator="In", values=["x"])
    other = LabelSelectorRequirement(key="a", operator="In", values=("x",))
    assert workload.same(one, other)


def test_names_that_make_odd_hostnames_are_pointed_out() -> None:
    resource = RESOURCES["Deployment"]
    obj = resource.from_document(workload_document({"metadata": {"name": "a.b"}}))
    assert list(resource.strategy.warnings(obj)) == [
        "metadata.name: this is used in Pod names and hostnames, which can result in surprising "
        "behavior; a DNS label is recommended: [must not contain dots]"
    ]
