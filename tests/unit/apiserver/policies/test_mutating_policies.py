"""Documents are compared part by part."""

from typing import Any

import pytest

from kedge.apiserver.policies.mutating_policies import MOST_PARTS, parts_of

LONG_MAP: dict[str, Any] = {f"k{number}": number for number in range(MOST_PARTS + 1)}
OBJECT: dict[str, Any] = {
    "metadata": {"name": "a", "managedFields": [{"fieldsV1": {"f:spec": {"f:a": {}}}}, {}]},
    "spec": {"m": LONG_MAP, "l": [1, 2]},
}


def is_equal(one: Any, other: Any) -> bool:
    return all(mine == theirs for mine, theirs in parts_of(one, other, 4))


@pytest.mark.parametrize(
    ("other", "equal"),
    [
        ({**OBJECT}, True),
        ({"spec": OBJECT["spec"], "metadata": OBJECT["metadata"]}, True),
        ({**OBJECT, "status": {}}, False),
        ({"metadata": OBJECT["metadata"]}, False),
        ({**OBJECT, "spec": {"m": LONG_MAP, "l": [1, 2, 3]}}, False),
        ({**OBJECT, "spec": {"m": LONG_MAP, "l": [1, 3]}}, False),
        ({**OBJECT, "spec": {"m": {**LONG_MAP, "k0": 1}, "l": [1, 2]}}, False),
        ({**OBJECT, "spec": [1]}, False),
        ({**OBJECT, "metadata": {"name": "a", "managedFields": [{}, {}]}}, False),
    ],
)
def test_parts_are_equal_if_the_documents_are(other: Any, equal: bool) -> None:
    assert (other == OBJECT) is equal
    assert is_equal(OBJECT, other) is equal
    assert is_equal(other, OBJECT) is equal


def test_owners_are_parts_of_their_own_and_long_maps_are_one() -> None:
    parts = [mine for mine, _ in parts_of(OBJECT, OBJECT, 4)]
    assert {"f:spec": {"f:a": {}}} in parts or {"fieldsV1": {"f:spec": {"f:a": {}}}} in parts
    assert LONG_MAP in parts
