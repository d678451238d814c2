"""The LimitRanges of the group kedge.dev."""

import pytest
from tests.unit.admission_webhook import reviews

from kedge.admission_webhook.limit_ranges import LimitRangesByNamespace
from kedge.machinery.errors import StatusError

POD = {"type": "Pod", "max": {"cpu": "1"}}


def test_they_are_combined_by_namespace_in_the_order_of_their_names() -> None:
    known = LimitRangesByNamespace()
    known.replace([reviews.limit_range(POD, name="b"), reviews.limit_range(POD, name="a")])
    bounds = known.bounds("shop")
    assert bounds is not None
    assert [rule.limit_range for rule in bounds.rules] == ["a", "b"]
    assert known.bounds("shop") is bounds
    assert known.bounds("other") is None


def test_changes_take_effect() -> None:
    known = LimitRangesByNamespace()
    known.put(reviews.limit_range(POD))
    first = known.bounds("shop")
    known.put(reviews.limit_range(POD, {"type": "Container", "max": {"cpu": "1"}}))
    second = known.bounds("shop")
    assert first is not None
    assert second is not None
    assert (len(first.rules), len(second.rules)) == (1, 2)
    known.remove(reviews.limit_range(POD))
    assert known.bounds("shop") is None
    known.replace([])
    assert known.bounds("shop") is None


def test_the_defaults_of_items_are_filled_in() -> None:
    bounds = reviews.limits({"type": "Container", "max": {"cpu": "2"}})
    assert bounds is not None
    assert str(bounds.rules[0].default_request["cpu"]) == "2"


def test_one_that_was_stored_although_invalid_stops_its_namespace() -> None:
    known = LimitRangesByNamespace()
    known.put(reviews.limit_range({"type": "Pod", "selector": {"fieldSelector": "a=b=c"}}))
    with pytest.raises(StatusError, match=r"limits of kedge\.dev in namespace shop is invalid"):
        known.bounds("shop")
