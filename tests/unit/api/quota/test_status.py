import pytest

from kedge.api.core_v1.resource_quota import ResourceQuotaSpec, ResourceQuotaStatus
from kedge.api.quota.status import is_complete, status_of
from kedge.machinery.quantity import Quantity

ONE, NINE = Quantity.parse("1"), Quantity.parse("9")
HARD = {"pods": NINE, "services": NINE}


@pytest.mark.parametrize("known", [{}, {"pods": "3", "old": "1"}])
def test_what_nobody_has_counted_yet_stays_as_it_was(known: dict[str, str]) -> None:
    used = {name: Quantity.parse(amount) for name, amount in known.items()}
    spec, status = ResourceQuotaSpec(hard=HARD), ResourceQuotaStatus(used=used)
    expected = {"services": ONE} | ({"pods": used["pods"]} if known else {})
    found = status_of(spec, status, {"services": ONE})
    assert found == ResourceQuotaStatus(hard=HARD, used=expected)


@pytest.mark.parametrize(
    ("hard", "used", "complete"),
    [
        (HARD, {"pods": ONE, "services": ONE}, True),
        (HARD, {"pods": ONE}, False),
        ({"pods": NINE}, {"pods": ONE, "services": ONE}, False),
        ({}, {}, False),
    ],
)
def test_a_status_is_complete_with_all_bounds_of_the_spec_and_their_usage(
    hard: dict[str, Quantity], used: dict[str, Quantity], complete: bool
) -> None:
    status = ResourceQuotaStatus(hard=hard, used=used)
    assert is_complete(ResourceQuotaSpec(hard=HARD), status) is complete
