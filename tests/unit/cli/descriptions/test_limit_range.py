"""LimitRanges, described."""

from datetime import UTC, datetime
from typing import Any

from kedge.cli.descriptions.limit_range import describe, restriction
from kedge.cli.descriptions.parts import RelatedObjects

ABOUT = RelatedObjects(now=datetime(2030, 1, 1, tzinfo=UTC))
WIDE = RelatedObjects(now=ABOUT.now, wide=True)

BOUNDS = {"max": {"cpu": "2", "memory": "1Gi"}, "min": {"cpu": "250m", "memory": "1Mi"}}
LIMITS: dict[str, Any] = {
    "metadata": {"name": "limits", "namespace": "myspace"},
    "spec": {
        "limits": [
            {
                "type": "Pod",
                "max": {"memory": "1Gi", "cpu": "2"},
                "min": {"memory": "1Mi", "cpu": "250m"},
            },
            {"type": "Container", **BOUNDS, "default": BOUNDS["max"]},
        ]
    },
}

SEED = """\
Name:   limits
Type    Resource  Min Max
----    --------  --- ---
Pod   memory    1Mi 1Gi
Pod   cpu   250m  2
Container cpu   250m  2
Container memory    1Mi 1Gi"""
"""The proposal's own transcript; whoever pasted it had tab stops every two columns."""


def test_the_table_is_that_of_the_proposal() -> None:
    assert describe(LIMITS, ABOUT).expandtabs(2) == SEED


def test_in_a_terminal_the_columns_are_straight() -> None:
    assert describe(LIMITS, ABOUT).expandtabs(8).splitlines()[1:5] == [
        "Type            Resource        Min     Max",
        "----            --------        ---     ---",
        "Pod             memory          1Mi     1Gi",
        "Pod             cpu             250m    2",
    ]


def test_what_is_not_bounded_has_a_dash() -> None:
    item = {"type": "Pod", "min": {"cpu": "1"}, "max": {"memory": "1Gi"}}
    limits = {"metadata": LIMITS["metadata"], "spec": {"limits": [item]}}
    assert [line.split() for line in describe(limits, ABOUT).splitlines()[3:]] == [
        ["Pod", "cpu", "1", "-"],
        ["Pod", "memory", "-", "1Gi"],
    ]


def test_wide_has_the_columns_of_kubectl() -> None:
    assert describe(LIMITS, WIDE).splitlines()[:4] + describe(LIMITS, WIDE).splitlines()[6:7] == [
        "Name:       limits",
        "Namespace:  myspace",
        "Type        Resource  Min   Max  Default Request  Default Limit  Max Limit/Request Ratio",
        "----        --------  ---   ---  ---------------  -------------  -----------------------",
        "Container   cpu       250m  2    -                2              -",
    ]


def test_an_item_for_some_says_for_whom() -> None:
    item = {"type": "Pod", "max": {"cpu": "1"}, "selector": {"matchLabels": {"app": "web"}}}
    limits = {
        "metadata": LIMITS["metadata"],
        "spec": {"limits": [item, {"type": "Container", "max": {"cpu": "1"}}]},
    }
    lines = describe(limits, ABOUT).splitlines()
    assert lines[1].endswith("Only For")
    assert [line.split()[-1] for line in lines[3:]] == ["app=web", "-"]


def test_all_conditions_of_a_selector_are_told() -> None:
    selector = {
        "matchLabels": {"b": "2", "a": "1"},
        "matchExpressions": [
            {"key": "tier", "operator": "NotIn", "values": ["x", "y"]},
            {"key": "old", "operator": "DoesNotExist"},
        ],
        "fieldSelector": "spec.nodeName=n",
        "containerName": "main",
    }
    assert restriction(selector) == (
        "a=1,b=2,tier notin (x, y),!old,spec.nodeName=n,containerName=main"
    )
