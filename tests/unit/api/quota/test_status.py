import pytest

from kedge.api.core_v1.resource_quota import ResourceQuotaSpec, ResourceQuotaStatus
from kedge.api.quota.status import is_complete, readable, status_of
from kedge.machinery.quantity import LARGEST, Quantity

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


@pytest.mark.parametrize("text", ["9" * 1000 + "E", "9" * 1000 + "e1", "4Ei", "100E", "1", "500m"])
@pytest.mark.parametrize("times", [1, 3])
def test_all_amounts_of_a_status_are_read_as_they_were_written(text: str, times: int) -> None:
    one = Quantity.parse(text)
    amount = Quantity(one.nanos * times, one.format)
    shown = readable(amount)
    assert Quantity.parse(str(shown)) == shown
    assert shown == amount or amount > LARGEST
    found = status_of(ResourceQuotaSpec(hard={"a": amount}), ResourceQuotaStatus(), {"a": amount})
    assert found == ResourceQuotaStatus(hard={"a": shown}, used={"a": shown})
