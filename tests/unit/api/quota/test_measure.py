from datetime import UTC, datetime, timedelta

import pytest

from kedge.api.core_v1.resource_quota import ScopedResourceSelectorRequirement
from kedge.api.quota.claims import ClaimQuotaMeter
from kedge.api.quota.count import CountQuotaMeter
from kedge.api.quota.measure import ONE, QuotaMeasure, matches
from kedge.api.quota.pods import PodQuotaMeter


def requirement(scope: str, operator: str, *values: str) -> ScopedResourceSelectorRequirement:
    return ScopedResourceSelectorRequirement(scopeName=scope, operator=operator, values=values)


@pytest.mark.parametrize(
    ("operator", "values", "of_high", "of_none"),
    [
        ("Exists", (), True, False),
        ("DoesNotExist", (), False, True),
        ("In", ("high", "low"), True, False),
        ("In", ("low",), False, False),
        ("NotIn", ("high",), False, True),
        ("NotIn", ("low",), True, True),
    ],
)
def test_conditions_on_the_priority_class(
    operator: str, values: tuple[str, ...], of_high: bool, of_none: bool
) -> None:
    wanted = requirement("PriorityClass", operator, *values)
    assert matches(wanted, PodQuotaMeter(), {"PriorityClass": ("high",)}) is of_high
    assert matches(wanted, PodQuotaMeter(), {}) is of_none


def test_one_of_several_attributes_classes_is_enough() -> None:
    classes = {"VolumeAttributesClass": ["gold", "silver"]}
    wanted = requirement("VolumeAttributesClass", "In", "silver")
    assert matches(wanted, ClaimQuotaMeter(), classes)
    assert matches(
        requirement("VolumeAttributesClass", "NotIn", "silver"), ClaimQuotaMeter(), classes
    )


@pytest.mark.parametrize("operator", ["Exists", "DoesNotExist", "NotIn"])
def test_what_cannot_be_in_a_scope_is_not_counted_by_a_quota_with_it(operator: str) -> None:
    wanted = requirement("PriorityClass", operator, "x")
    assert not matches(wanted, CountQuotaMeter("", "secrets"), {})


def test_usage_falls_after_a_time_if_it_is_known() -> None:
    noon, second = datetime(2030, 1, 1, 12, tzinfo=UTC), timedelta(seconds=1)
    before, after = {"pods": ONE, "cpu": ONE}, {"pods": ONE}
    falling = QuotaMeasure(before, {}, noon, after)
    assert [falling.at(noon - second), falling.at(noon), falling.at(noon + second)] == [
        before,
        before,
        after,
    ]
    assert QuotaMeasure(before, {}).at(noon + second) == before
    assert QuotaMeasure(before, {}, noon).at(noon + second) == before
    assert QuotaMeasure(before, {}, None, after).at(noon + second) == before
