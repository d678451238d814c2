"""Events: one store under two names, and `kubectl events`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Api, Kubectl

NOW = "2026-01-02T03:04:05Z"


@pytest.fixture
def events(api: Api, namespace: str) -> None:
    """One written in the old way, one in the new way."""
    regarding = {"apiVersion": "v1", "kind": "Pod", "name": "web", "namespace": namespace}
    api.create(
        f"/api/v1/namespaces/{namespace}/events",
        {
            "metadata": {"name": "old"},
            "involvedObject": regarding | {"fieldPath": "spec.containers{main}"},
            "type": "Warning",
            "reason": "Failed",
            "message": "it failed",
            "source": {"component": "tester", "host": "box"},
            "firstTimestamp": NOW,
            "lastTimestamp": NOW,
            "count": 3,
        },
    )
    api.create(
        f"/apis/events.k8s.io/v1/namespaces/{namespace}/events",
        {
            "metadata": {"name": "new"},
            "regarding": regarding,
            "eventTime": "2026-01-02T03:04:05.678901Z",
            "type": "Normal",
            "reason": "Started",
            "action": "Starting",
            "note": "it started",
            "reportingController": "example.com/tester",
            "reportingInstance": "box",
        },
    )


def test_get_shows_the_servers_columns(kubectl: Kubectl, events: None) -> None:
    rows = {row["REASON"]: row for row in kubectl.table("get events")}
    assert list(rows["Failed"]) == ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert rows["Failed"]["TYPE"] == "Warning"
    assert rows["Failed"]["OBJECT"] == "pod/web"
    assert rows["Failed"]["MESSAGE"] == "it failed"
    assert rows["Started"]["MESSAGE"] == "it started"
    (row,) = kubectl.table("get events -o wide --field-selector=reason=Failed")
    assert (row["SUBOBJECT"], row["SOURCE"]) == ("spec.containers{main}", "tester, box")
    assert (row["COUNT"], row["NAME"]) == ("3", "old")


def test_kubectl_events(kubectl: Kubectl, events: None) -> None:
    rows = kubectl.table("events --for pod/web")
    assert list(rows[0]) == ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert {(row["TYPE"], row["REASON"], row["OBJECT"]) for row in rows} == {
        ("Warning", "Failed", "Pod/web"),
        ("Normal", "Started", "Pod/web"),
    }
    (row,) = kubectl.table("events --types=Warning")
    assert row["REASON"] == "Failed"


def test_both_names_show_the_same_objects(kubectl: Kubectl, events: None) -> None:
    old: dict[str, Any] = {e["metadata"]["name"]: e for e in kubectl.json("get ev")["items"]}
    listed = kubectl.json("get events.events.k8s.io")["items"]
    new: dict[str, Any] = {e["metadata"]["name"]: e for e in listed}
    for name in ("old", "new"):
        for key in ("uid", "resourceVersion", "creationTimestamp"):
            assert old[name]["metadata"][key] == new[name]["metadata"][key]
        assert old[name]["message"] == new[name]["note"]
        assert old[name]["involvedObject"] == new[name]["regarding"]
    assert new["old"]["deprecatedCount"] == 3
    assert new["old"]["deprecatedSource"] == {"component": "tester", "host": "box"}
    assert new["old"]["deprecatedLastTimestamp"] == NOW
    assert old["new"]["reportingComponent"] == "example.com/tester"
    assert old["new"]["eventTime"] == "2026-01-02T03:04:05.678901Z"


def test_selectors_of_either_name(kubectl: Kubectl, events: None) -> None:
    def chosen(what: str, selector: str) -> str:
        return kubectl.says(f"get {what} -o jsonpath={{.items[*].metadata.name}} {selector}")

    assert chosen("events", "--field-selector=involvedObject.name=web,type=Warning") == "old"
    assert chosen("events", "--field-selector=source=tester") == "old"
    assert chosen("events.events.k8s.io", "--field-selector=regarding.kind=Pod") == "new old"
    assert chosen(
        "events.events.k8s.io", "--field-selector=reportingController=example.com/tester"
    ) == "new"  # fmt: skip
