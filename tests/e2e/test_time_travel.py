"""Time travel and snapshots, as docs/testing-faults.md shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.conftest import Clusters, OwnCluster

JOBS = "/apis/batch/v1/namespaces/default/jobs"
CRON_JOBS = "/apis/batch/v1/namespaces/default/cronjobs"
MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def own(
    own_clusters: type[Clusters], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OwnCluster]:
    own = own_clusters.own(tmp_path_factory.mktemp("travel"))
    own.up("--testing", "--nodes=1", "--store=memory")
    yield own
    own.down()


@pytest.fixture
def api(own: OwnCluster, own_clusters: type[Clusters]) -> Any:
    return own_clusters.given(own.home, own.kubeconfig).api


def clock(own: OwnCluster, line: str) -> str:
    return own.kedge("clock", *line.split(), f"--kubeconfig={own.kubeconfig}")


def test_an_hour_passes(own: OwnCluster, api: Any, eventually: Callable[..., Any]) -> None:
    container = {"name": "main", "image": "host", "command": ["true"]}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    spec = {"schedule": "0 * * * *", "suspend": False}
    job = {"spec": {"template": template}}
    made = {"metadata": {"name": "hourly"}, "spec": {**spec, "jobTemplate": job}}
    api.create(CRON_JOBS, made)
    wanted = {"spec": {"expirationSeconds": 600}}
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    api.create(accounts, {"metadata": {"name": "holder"}})
    token = api.create(f"{accounts}/holder/token", wanted)
    holder = api.stranger()
    holder.token = token["status"]["token"]
    reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    assert holder.create(reviews, {})["status"]["userInfo"]["username"].endswith(":holder")

    assert "ahead of the machine" in clock(own, "advance 1h")

    # The CronJob was due, the token is expired, and the node is still there.
    assert eventually(lambda: api.get(JOBS)["items"], within=60)
    with pytest.raises(Exception, match="401: "):
        holder.create(reviews, {})
    (node,) = api.get("/api/v1/nodes")["items"]
    ready = next(each for each in node["status"]["conditions"] if each["type"] == "Ready")
    assert ready["status"] == "True"


def test_time_stands_still(own: OwnCluster, api: Any) -> None:
    assert clock(own, "freeze").endswith("frozen\n")
    try:
        born = [
            api.create(MAPS, {"metadata": {"name": f"frozen-{i}"}})["metadata"]["creationTimestamp"]
            for i in range(2)
        ]
        before = clock(own, "show").partition(",")[0]
        assert clock(own, "show").partition(",")[0] == before
        assert before.startswith(born[0].removesuffix("Z"))
        assert born[0] == born[1]
    finally:
        assert "frozen" not in clock(own, "resume")


def test_objects_come_back(api: Any) -> None:
    api.create(MAPS, {"metadata": {"name": "precious"}, "data": {"k": "v"}})
    taken = api.create("/testing/snapshots", {})
    api.delete(f"{MAPS}/precious")
    api.create(MAPS, {"metadata": {"name": "rubbish"}})
    api.create(f"/testing/snapshots/{taken['id']}/restore", {})
    assert api.get(f"{MAPS}/precious")["data"] == {"k": "v"}
    assert not api.exists(f"{MAPS}/rubbish")


def test_disk_pressure(own: OwnCluster, api: Any, eventually: Callable[..., Any]) -> None:
    (node,) = api.get("/api/v1/nodes")["items"]
    name, status = node["metadata"]["name"], node["status"]
    which = f"--kubeconfig={own.kubeconfig}"
    # The agent cannot contradict what the test says about its node.
    user = f"system:node:{name}"
    own.kedge("faults", "add", f"--user={user}", "--resource=nodes/status", "--code=503", which)
    for each in status["conditions"]:
        each["status"] = "True" if each["type"] == "DiskPressure" else each["status"]
    path = f"/api/v1/nodes/{name}"
    api.merge(f"{path}/status", {"status": {"conditions": status["conditions"]}})

    def keys() -> list[str]:
        return [taint["key"] for taint in api.get(path)["spec"].get("taints", ())]

    assert eventually(lambda: "node.kubernetes.io/disk-pressure" in keys(), within=60)
