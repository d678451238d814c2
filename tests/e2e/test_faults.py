"""Faults on purpose, as docs/testing-faults.md shows them: `kedge up --testing`, `kedge faults`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from kedge.api.testing import request_checks
from kedge.api.testing.recorded_request import RecordedRequest, RequestPage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.conftest import Clusters, OwnCluster

MAPS = "/api/v1/namespaces/default/configmaps"


AGENT = {"User_Agent": "my-operator/1.0"}


class TestingCluster:
    """A cluster for tests, and its administrator."""

    __test__ = False

    def __init__(self, own: OwnCluster) -> None:
        self._own = own
        self.api = own.up("--testing").api

    def faults(self, line: str) -> str:
        return self._own.kedge("faults", *line.split(), f"--kubeconfig={self._own.kubeconfig}")

    def requests(self, line: str) -> list[RecordedRequest]:
        said = self._own.kedge(
            "requests", *line.split(), "-o=json", f"--kubeconfig={self._own.kubeconfig}"
        )
        return msgspec.json.decode(said, type=RequestPage).items

    def fails(self, line: str) -> str:
        return self._own.fails("faults", *line.split(), f"--kubeconfig={self._own.kubeconfig}")

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        return self.api(method, path, body, **headers)


@pytest.fixture(scope="module")
def testing(
    own_clusters: type[Clusters], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TestingCluster]:
    own = own_clusters.own(tmp_path_factory.mktemp("testing"))
    yield TestingCluster(own)
    own.down()


@pytest.fixture
def cluster(testing: TestingCluster) -> Iterator[TestingCluster]:
    yield testing
    testing.faults("remove --all")


def test_two_conflicts_for_one_client(cluster: TestingCluster) -> None:
    cluster.request("POST", MAPS, {"metadata": {"name": "counter"}})
    added = cluster.faults(
        "add --verbs update --resource configmaps --user-agent my-operator --code 409 --times 2"
    )
    assert added.endswith(" added\n")
    path, body = f"{MAPS}/counter", {"metadata": {"name": "counter"}, "data": {"n": "1"}}
    # The test itself is not affected, the operator is, twice.
    cluster.request("PUT", path, body)
    for _ in range(2):
        with pytest.raises(Exception, match="409: the fault rule"):
            cluster.request("PUT", path, body, **AGENT)
    assert cluster.request("PUT", path, body, **AGENT)["data"] == {"n": "1"}
    row = cluster.faults("list").splitlines()[1].split()
    assert row[1:] == ["update", "configmaps", "<any>", "my-operator", "409", "2", "2"]


def test_a_dropped_connection(cluster: TestingCluster) -> None:
    cluster.faults("add --verbs create --resource configmaps --drop --stage after --times 1")
    with pytest.raises(OSError):  # noqa: PT011, it depends on how far the client has read
        cluster.request("POST", MAPS, {"metadata": {"name": "lost"}})
    # The answer got lost, the object did not.
    assert cluster.api.exists(f"{MAPS}/lost")


def test_a_watch_that_must_begin_again(cluster: TestingCluster) -> None:
    path = f"{MAPS}?watch=1&resourceVersion=0"
    request = cluster.api.request("GET", path, **AGENT)
    with cluster.api.open(request) as watch:
        # Controllers of the cluster watch configmaps, too: name the client.
        cluster.faults("add --verbs watch --user-agent my-operator --code 410 --times 1")
        events = [json.loads(line) for line in watch]
    assert (events[-1]["type"], events[-1]["object"]["reason"]) == ("ERROR", "Expired")


def test_bad_rules_are_refused(cluster: TestingCluster) -> None:
    said = cluster.fails("add --verbs updat --code 200")
    assert 'verbs[0]: Unsupported value: "updat"' in said
    assert "code: Invalid value: 200: must be between 400 and 599" in said
    assert cluster.faults("list") == "There are no fault rules.\n"


def test_requests_of_a_controller(cluster: TestingCluster) -> None:
    agent = {"User_Agent": "careless-operator/1.0"}
    cluster.request("POST", MAPS, {"metadata": {"name": "seen"}}, **agent)
    cluster.request("GET", MAPS, **agent)
    body = {"metadata": {"name": "seen"}}
    for _ in range(3):
        cluster.request("PUT", f"{MAPS}/seen", body, **agent)
    found = cluster.requests("--user-agent careless-operator")
    assert [each.verb for each in found] == ["create", "list", "update", "update", "update"]
    # It lists without a cache, and writes what is there already.
    with pytest.raises(AssertionError, match="1 lists without a resourceVersion"):
        request_checks.assert_cached(found)
    with pytest.raises(AssertionError, match="3 writes that changed nothing"):
        request_checks.assert_effective(found)
    with pytest.raises(AssertionError, match="3 times: kubernetes-admin update configmaps"):
        request_checks.assert_no_hot_loops(found, most=2)
    request_checks.assert_no_conflicts(found)
    last = found[-1].number
    request_checks.assert_quiet(
        cluster.requests(f"--user-agent careless-operator --since {last + 1}")
    )
