"""The selector of an item: what it may say, and when two items say the same."""

from typing import Any

import pytest

from kedge.api.core_v1.limit_range import RESOURCE

FIELDS = '"metadata.name", "metadata.namespace"'


def errors(*items: dict[str, Any]) -> list[str]:
    obj = RESOURCE.from_document({"spec": {"limits": list(items)}})
    return [str(error) for error in RESOURCE.strategy.validate(obj)]


def item(type_: str = "Container", **selector: Any) -> dict[str, Any]:
    return {"type": type_, "max": {"cpu": "1"}, "selector": selector}


@pytest.mark.parametrize(
    "selector",
    [
        {"matchLabels": {"app": "web"}},
        {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a", "b"]}]},
        {"fieldSelector": "spec.nodeName=one,status.phase!=Running,metadata.name!=x"},
        {"name": "web-0", "uid": "d1c3", "containerName": "main"},
    ],
)
def test_a_selector_in_order_is_taken(selector: dict[str, Any]) -> None:
    assert errors(item(**selector)) == []


@pytest.mark.parametrize(
    ("type_", "selector", "error"),
    [
        (
            "Container",
            {},
            "selector: Required value: must say at least one of matchLabels, matchExpressions, "
            "fieldSelector, name, uid, containerName",
        ),
        (
            "Pod",
            {"matchExpressions": [{"key": "app", "operator": "In"}]},
            "selector.matchExpressions[0].values: Required value: must be specified when "
            "`operator` is 'In' or 'NotIn'",
        ),
        (
            "Pod",
            {"containerName": "main"},
            "selector.containerName: Forbidden: may only be specified when `type` is 'Container'",
        ),
        (
            "Pod",
            {"fieldSelector": "spec.nodeName"},
            'selector.fieldSelector: Invalid value: "spec.nodeName": invalid selector: '
            "'spec.nodeName'; can't understand 'spec.nodeName'",
        ),
        (
            "example.com/Thing",
            {"fieldSelector": "spec.nodeName=one"},
            'selector.fieldSelector: Invalid value: "spec.nodeName=one": "spec.nodeName" is not a '
            f"known field selector: only {FIELDS}",
        ),
    ],
)
def test_what_is_wrong_with_a_selector_is_named(
    type_: str, selector: dict[str, Any], error: str
) -> None:
    assert errors(item(type_, **selector)) == [f"spec.limits[0].{error}"]


def test_names_must_be_such_as_pods_and_containers_have() -> None:
    found = errors(item(name="No Pod", containerName="a.b"))
    assert [each.partition(":")[0] for each in found] == [
        "spec.limits[0].selector.name",
        "spec.limits[0].selector.containerName",
    ]


def test_a_type_may_come_again_under_another_selector() -> None:
    plain = {"type": "Container", "max": {"cpu": "1"}}
    assert errors(item(name="a"), item(name="b"), item("Pod", name="a"), plain) == []


def test_the_same_selector_in_other_words_is_the_same() -> None:
    one = item(matchLabels={"app": "web", "tier": "x"}, fieldSelector="metadata.name=a,spec.host=")
    other = item(
        matchLabels={"tier": "x", "app": "web"}, fieldSelector="spec.host=,metadata.name=a"
    )
    assert errors(one, other) == [
        'spec.limits[1].selector: Duplicate value: {"matchLabels":{"tier":"x","app":"web"},'
        '"fieldSelector":"spec.host=,metadata.name=a"}'
    ]


def test_only_kedge_knows_selectors() -> None:
    document = {"spec": {"limits": [{"type": "Pod"}, item(name="a")]}}
    assert RESOURCE.extensions is not None
    assert RESOURCE.extensions.find(document) == ["spec.limits[1].selector"]
    assert RESOURCE.upstream().extensions is None
