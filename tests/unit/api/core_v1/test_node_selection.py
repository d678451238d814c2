from typing import Any

import pytest

from kedge.api.core_v1.node_selection import (
    names_of,
    preferred_nodes,
    required_nodes,
    required_terms,
)
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.testing.pods import new_pod

NODES = {"a": {"disk": "ssd", "cores": "8"}, "b": {"disk": "hdd", "cores": "x"}, "c": {}}


def spec_of(**spec: Any) -> PodSpec:
    return new_pod(spec=spec).spec


def requiring(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


def labels(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": [*values]}]}


def named(operator: str, *values: str) -> dict[str, Any]:
    expression = {"key": "metadata.name", "operator": operator, "values": [*values]}
    return {"matchFields": [expression]}


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({"nodeSelector": {"disk": "ssd"}}, "a"),
        (requiring(labels("disk", "In", "ssd", "hdd")), "ab"),
        (requiring(labels("disk", "NotIn", "ssd")), "bc"),
        (requiring(labels("disk", "DoesNotExist")), "c"),
        (requiring(labels("cores", "Gt", "4")), "a"),
        (requiring(labels("cores", "Lt", "nine")), ""),
        (requiring(named("In", "b")), "b"),
        (requiring(named("NotIn", "b")), "ac"),
        (requiring(labels("disk", "In", "ssd"), named("In", "c")), "ac"),
        (requiring(labels("disk", "Exists") | named("In", "c")), ""),
        (requiring({}), ""),
        (requiring(labels("disk", "Exists")) | {"nodeSelector": {"cores": "8"}}, "a"),
    ],
)
def test_nodes_that_a_pod_may_go_to(spec: dict[str, Any], allowed: str) -> None:
    matches = required_nodes(spec_of(**spec))
    assert matches is not None
    assert [name for name, each in NODES.items() if matches(name, each)] == [*allowed]


def test_a_pod_that_requires_nothing_may_go_anywhere() -> None:
    assert required_nodes(spec_of()) is None


def test_named_nodes_are_known_only_if_every_alternative_names_some() -> None:
    def names(*terms: dict[str, Any]) -> frozenset[str] | None:
        found = required_terms(spec_of(**requiring(*terms)))
        assert found is not None
        return names_of(found)

    assert names(named("In", "a"), named("In", "b")) == frozenset("ab")
    assert names(named("In", "a"), labels("disk", "Exists")) is None
    both = [*named("In", "a")["matchFields"], *named("In", "b")["matchFields"]]
    assert names({"matchFields": both}) == frozenset()


def test_wishes_keep_their_weights_and_empty_ones_count_for_nothing() -> None:
    wishes = [
        {"weight": 20, "preference": labels("disk", "In", "ssd")},
        {"weight": 5, "preference": labels("cores", "Exists")},
        {"weight": 7, "preference": {}},
    ]
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": wishes}
    found = preferred_nodes(spec_of(affinity={"nodeAffinity": preferred}))
    total = {n: sum(w for w, match in found if match(n, each)) for n, each in NODES.items()}
    assert total == {"a": 25, "b": 5, "c": 0}
