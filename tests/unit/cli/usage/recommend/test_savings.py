"""Requests before and after."""

from kedge.cli.usage.recommend.proposal import DeclaredSizes
from kedge.cli.usage.recommend.savings import RequestChange, added, requested
from kedge.machinery.quantity import Quantity


def change(before: str, after: str) -> RequestChange:
    return RequestChange(Quantity.parse(before), Quantity.parse(after))


def test_a_change_is_written_with_its_share() -> None:
    assert change("1", "250m").text == "1 -> 250m (-75%)"
    assert change("100m", "150m").text == "100m -> 150m (+50%)"
    assert change("0", "150m").text == "0 -> 150m"
    assert str(change("100m", "150m").saved) == "-50m"


def test_changes_add_up_by_resource() -> None:
    one = {"cpu": change("1", "250m"), "memory": change("1Gi", "512Mi")}
    total = added([one, one])
    assert {name: each.text for name, each in total.items()} == {
        "cpu": "2 -> 500m (-75%)",
        "memory": "2Gi -> 1Gi (-50%)",
    }
    assert str(added([])["cpu"].saved) == "0"


def test_a_limit_without_a_request_is_a_request() -> None:
    declared = DeclaredSizes("containers", {"requests": {"cpu": "1"}, "limits": {"memory": "1Ki"}})
    assert requested(declared, "cpu") == 1_000_000_000
    assert requested(declared, "memory") == 1024 * 1_000_000_000
    assert requested(DeclaredSizes("containers", {}), "cpu") == 0
