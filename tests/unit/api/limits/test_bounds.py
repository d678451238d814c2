from typing import Any

import pytest

from kedge.api.core_v1.limit_range import RESOURCE
from kedge.api.limits.bounds import NamespaceLimits, NarrowestBounds, bounds_of
from kedge.testing.pods import new_pod

MILLI = 10**6


def bounds(**ranges: list[dict[str, Any]]) -> NamespaceLimits:
    documents = (
        {"metadata": {"name": name}, "spec": {"limits": items}} for name, items in ranges.items()
    )
    return bounds_of(
        [RESOURCE.strategy.default(RESOURCE.from_document(each)) for each in documents]
    )


def test_rules_stand_in_the_order_of_names_then_of_items() -> None:
    found = bounds(b=[{"type": "Pod"}], a=[{"type": "Pod"}, {"type": "Container"}])
    assert [(rule.limit_range, rule.type) for rule in found.rules] == [
        ("a", "Pod"),
        ("a", "Container"),
        ("b", "Pod"),
    ]


def test_the_narrowest_bounds_are_known_beforehand() -> None:
    found = bounds(
        a=[{"type": "Pod", "min": {"cpu": "1m"}, "max": {"cpu": "4m", "memory": "8m"}}],
        b=[{"type": "Pod", "min": {"cpu": "2m"}, "max": {"cpu": "5m"}}],
        c=[{"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}],
    )
    assert found.pods == (
        NarrowestBounds("cpu", 2 * MILLI, 4 * MILLI, None),
        NarrowestBounds("memory", None, 8 * MILLI, None),
    )
    assert found.containers == (NarrowestBounds("cpu", None, None, 2000 * MILLI),)


def test_no_limit_ranges_are_no_bounds() -> None:
    assert not bounds_of([])
    assert bounds(a=[{"type": "Pod"}])


LABELS = {"app": "web", "tier": "front"}


@pytest.mark.parametrize(
    ("selector", "covers"),
    [
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "other"}}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}, True),
        ({"matchLabels": {"app": "web"}, "name": "other"}, False),
        ({"name": "pod"}, True),
        ({"uid": "u-1"}, True),
        ({"uid": "u-2"}, False),
        ({"fieldSelector": "spec.schedulerName=default-scheduler,metadata.name=pod"}, True),
        ({"fieldSelector": "spec.nodeName!="}, False),
        ({"fieldSelector": "metadata.namespace=default"}, True),
    ],
)
def test_all_that_a_selector_says_must_be_true(selector: dict[str, Any], covers: bool) -> None:
    rule = bounds(a=[{"type": "Pod", "selector": selector}]).rules[0]
    assert rule.covers(new_pod(metadata={"labels": LABELS, "uid": "u-1"})) is covers


def test_a_container_is_chosen_by_its_name() -> None:
    rule = bounds(a=[{"type": "Container", "selector": {"containerName": "main"}}]).rules[0]
    assert rule.covers(new_pod())
    assert rule.covers_container("main")
    assert not rule.covers_container("side")
