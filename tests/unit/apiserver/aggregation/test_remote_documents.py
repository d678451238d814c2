"""Remote versions in discovery and OpenAPI."""

from typing import Any

from kedge.api.catalog import BUILT_IN
from kedge.apiserver import discovery
from kedge.apiserver.aggregation.remote_documents import RemoteDocument, RemoteDocuments
from kedge.apiserver.group_priorities import GroupPriority

OWN = discovery.aggregated(BUILT_IN)
FLUNDERS: list[dict[str, Any]] = [{"resource": "flunders"}]


def names(document: dict[str, Any]) -> list[str]:
    return [each["metadata"]["name"] for each in document["items"]]


def test_without_remote_versions_documents_stay_as_they_are() -> None:
    remotes = RemoteDocuments()
    assert remotes.merged_aggregated(OWN) is OWN
    assert remotes.merged_group("none", None) is None


def test_groups_are_in_the_order_of_their_priority() -> None:
    remotes = RemoteDocuments()
    remotes.put("high.example.com", "v1", RemoteDocument(GroupPriority(20000, 1)))
    remotes.put("low.example.com", "v1", RemoteDocument(GroupPriority(10, 1)))
    found = names(remotes.merged_aggregated(OWN))
    assert found[:3] == ["apiregistration.k8s.io", "high.example.com", "apps"]
    assert found[-1] == "low.example.com"
    assert [name for name in found if not name.endswith("example.com")] == names(OWN)
    legacy = remotes.merged_groups(discovery.group_list(BUILT_IN))["groups"]
    assert [each["name"] for each in legacy] == found


def test_versions_of_one_group_are_in_the_order_of_their_priority() -> None:
    remotes = RemoteDocuments()
    for version, rank in (("v1alpha1", 30), ("v1", 10), ("v2", 10)):
        remotes.put("g.example.com", version, RemoteDocument(GroupPriority(1, rank)))
    found = remotes.merged_group("g.example.com", None)
    assert found is not None
    assert [each["version"] for each in found["versions"]] == ["v1alpha1", "v2", "v1"]
    assert found["preferredVersion"]["groupVersion"] == "g.example.com/v1alpha1"


def test_a_remote_version_replaces_the_servers_own() -> None:
    remotes = RemoteDocuments()
    document = RemoteDocument(GroupPriority(100, 100), FLUNDERS, is_current=True)
    remotes.put("metrics.k8s.io", "v1beta1", document)
    items = {each["metadata"]["name"]: each for each in remotes.merged_aggregated(OWN)["items"]}
    versions = {each["version"]: each for each in items["metrics.k8s.io"]["versions"]}
    assert versions["v1beta1"] == {
        "version": "v1beta1",
        "resources": FLUNDERS,
        "freshness": "Current",
    }
    assert versions["v1"]["freshness"] == "Current"


def test_a_version_whose_server_is_away_is_stale() -> None:
    remotes = RemoteDocuments()
    remotes.put("g.example.com", "v1", RemoteDocument(GroupPriority(1, 1)))
    [version] = remotes.merged_aggregated(OWN)["items"][-1]["versions"]
    assert version == {"version": "v1", "resources": [], "freshness": "Stale"}


def test_the_openapi_index_lists_documents_of_other_servers() -> None:
    remotes = RemoteDocuments()
    remotes.put("g", "v1", RemoteDocument(GroupPriority(1, 1), openapi_hash="ABC"))
    remotes.put("h", "v1", RemoteDocument(GroupPriority(1, 1)))
    own = {"paths": {"api/v1": {"serverRelativeURL": "x"}, "apis/h/v1": {}}}
    assert remotes.merged_openapi_index(own)["paths"] == {
        "api/v1": {"serverRelativeURL": "x"},
        "apis/g/v1": {"serverRelativeURL": "/openapi/v3/apis/g/v1?hash=ABC"},
    }


def test_only_changes_count() -> None:
    remotes = RemoteDocuments()
    document = RemoteDocument(GroupPriority(1, 1))
    remotes.put("g", "v1", document)
    remotes.put("g", "v1", RemoteDocument(GroupPriority(1, 1)))
    assert (remotes.changes, remotes.get("g", "v1")) == (1, document)
    remotes.remove("g", "v1")
    remotes.remove("g", "v1")
    assert remotes.changes == 2
