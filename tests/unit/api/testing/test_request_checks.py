"""Checks of the requests of a controller."""

from typing import Any

import pytest

from kedge.api.testing import request_checks as checks
from kedge.api.testing.recorded_request import RecordedRequest


def request(verb: str, resource: str = "pods", **fields: Any) -> RecordedRequest:
    known: dict[str, Any] = {
        "number": 1,
        "time": "2030-01-01T00:00:00.000000Z",
        "seconds": 0.0,
        "user": "op",
        "path": f"/api/v1/{resource}",
        "code": 200,
    }
    return RecordedRequest(verb=verb, resource=resource, **(known | fields))


def test_a_quiet_controller_watches_and_renews_leases() -> None:
    lease = request("update", "leases", group="coordination.k8s.io")
    checks.assert_quiet([request("watch"), lease])
    with pytest.raises(AssertionError, match="1 requests of a controller") as caught:
        checks.assert_quiet([request("watch"), request("get", name="web", namespace="shop")])
    assert "#1 op get pods shop/web: 200" in str(caught.value)


def test_lists_without_a_cache() -> None:
    good = [
        request("list", resource_version="0"),
        request("list", continues=True),
        request("get", resource="", path="/version"),
        request("watch"),
    ]
    checks.assert_cached(good)
    with pytest.raises(AssertionError, match="1 lists without a resourceVersion"):
        checks.assert_cached([*good, request("list")])


def test_writes_that_change_nothing() -> None:
    checks.assert_effective([request("update"), request("patch", unchanged=True, dry_run=True)])
    with pytest.raises(AssertionError, match="1 writes that changed nothing"):
        checks.assert_effective([request("update", unchanged=True)])


def test_conflicts_that_nobody_asked_for() -> None:
    checks.assert_no_conflicts([request("update"), request("update", code=409, fault="fault-1")])
    with pytest.raises(AssertionError, match="1 conflicts"):
        checks.assert_no_conflicts([request("update", code=409)])


def test_hot_loops_are_counted_by_object() -> None:
    often = [request("update", name="web", number=i) for i in range(6)]
    checks.assert_no_hot_loops([*often, request("update", name="db")], 6)
    with pytest.raises(AssertionError, match="6 times: op update pods web"):
        checks.assert_no_hot_loops(often, 5)
    assert checks.hot_loops([request("watch")] * 9, 5) == {}


def test_a_long_list_is_cut() -> None:
    with pytest.raises(AssertionError, match="and 10 more"):
        checks.assert_quiet([request("get")] * 30)
