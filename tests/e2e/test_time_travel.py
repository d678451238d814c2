"""Time travel, snapshots and faults of nodes, as docs/testing-faults.md shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kedge.machinery.quantity import Quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.conftest import Clusters, OwnCluster

JOBS = "/apis/batch/v1/namespaces/default/jobs"
CRON_JOBS = "/apis/batch/v1/namespaces/default/cronjobs"
MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
USAGE = "/apis/metrics/v1alpha1/namespaces/default/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"

MOST_BYTES = 50 << 20
HOG = """
import signal, time
kept = bytearray(b"x") * (60 << 20)
def free(*_):
    global kept
    kept = None
signal.signal(signal.SIGUSR1, free)
print("full", flush=True)
while True: time.sleep(1000)
"""
"""Holds more than MOST_BYTES until it is told to free them."""


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


def pod(name: str, *command: str, **fields: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "host", "command": [*command], **fields}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    return {"metadata": {"name": name}, "spec": spec}


def test_a_crashed_container_starts_again_when_time_is_skipped(
    own: OwnCluster, api: Any, eventually: Callable[..., Any]
) -> None:
    api.create(PODS, pod("crash", "sh", "-c", "exit 3"))

    def crashed(times: int) -> Any:
        (status,) = api.get(f"{PODS}/crash")["status"].get("containerStatuses") or ({},)
        waiting = status.get("state", {}).get("waiting", {})
        if status.get("restartCount") == times and waiting.get("reason") == "CrashLoopBackOff":
            return waiting["message"].split(" restarting")[0], status["lastState"]["terminated"]
        return None

    # Real time would be 10, 20 and 40 seconds; the delay still grows, as it does without travel.
    for times, delay in ((1, "10s"), (2, "20s"), (3, "40s")):
        said, ended = eventually(lambda times=times: crashed(times), within=60)
        assert said == f"back-off {delay}"
        clock(own, "advance 1m")
    # The node tells the cluster's time, and not the machine's.
    said, ended = eventually(lambda: crashed(4), within=60)
    lease = api.get(f"{LEASES}/{node_name(api)}")["spec"]["renewTime"]
    assert (
        lease[:16]
        >= ended["finishedAt"][:16]
        > api.get(f"{PODS}/crash")["metadata"]["creationTimestamp"]
    )
    api.delete(f"{PODS}/crash")


def test_windows_of_usage_roll(own: OwnCluster, api: Any, eventually: Callable[..., Any]) -> None:
    probe = {"exec": {"command": ["true"]}, "initialDelaySeconds": 600}
    api.create(PODS, pod("hog", "python3", "-c", HOG, readinessProbe=probe))

    def is_full() -> bool:
        (status,) = api.get(f"{PODS}/hog")["status"].get("containerStatuses") or ({},)
        running = "running" in status.get("state", {})
        return running and "full" in text(api, f"{PODS}/hog/log")

    def windows() -> Any:
        found = api.get(f"{USAGE}/hog") if api.exists(f"{USAGE}/hog") else {"containers": []}
        return found["containers"] and found["containers"][0]["metrics"]

    def most(window: str) -> int:
        found = (windows() or {}).get(window, {}).get("max", {}).get("memory", "0")
        return Quantity.of(found).nanos // 10**9

    eventually(is_full, within=60)
    # The probe is due, and with it the pod is ready.
    clock(own, "advance 11m")
    assert eventually(lambda: "True" in readiness(api, "hog"), within=60)
    eventually(lambda: most("1h") > MOST_BYTES, within=60)
    own.kedge("exec", "hog", f"--kubeconfig={own.kubeconfig}", "--", "kill", "-USR1", "1")
    clock(own, "advance 1h")
    clock(own, "advance 20s")
    # An hour without samples is a gap. What was before it is in the window of a day only.
    eventually(lambda: 0 < most("1h") < MOST_BYTES, within=60)
    assert most("1d") > MOST_BYTES
    api.delete(f"{PODS}/hog")


def test_a_silent_node_is_found_by_skipping_time(
    own: OwnCluster, api: Any, eventually: Callable[..., Any]
) -> None:
    name, which = node_name(api), f"--kubeconfig={own.kubeconfig}"

    def is_ready() -> str:
        conditions = api.get(f"/api/v1/nodes/{name}")["status"]["conditions"]
        return next(each["status"] for each in conditions if each["type"] == "Ready")

    clock(own, "advance 1h")
    assert is_ready() == "True"
    own.kedge("faults", "add", f"--user=system:node:{name}", "--drop", which)
    clock(own, "advance 2m")
    eventually(lambda: is_ready() == "Unknown", within=60)
    own.kedge("faults", "remove", "--all", which)
    clock(own, "advance 20s")
    eventually(lambda: is_ready() == "True", within=60)


def node_name(api: Any) -> str:
    (node,) = api.get("/api/v1/nodes")["items"]
    return str(node["metadata"]["name"])


def readiness(api: Any, name: str) -> list[str]:
    conditions = api.get(f"{PODS}/{name}")["status"].get("conditions", ())
    return [each["status"] for each in conditions if each["type"] == "Ready"]


def text(api: Any, path: str) -> str:
    with api.open(api.request("GET", path)) as answer:
        return str(answer.read().decode())


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


def test_a_container_that_runs_out_of_memory(
    own: OwnCluster, api: Any, eventually: Callable[..., Any]
) -> None:
    api.create(PODS, pod("hungry", "sleep", "1000"))
    which = f"--kubeconfig={own.kubeconfig}"

    def status() -> Any:
        found = api.get(f"{PODS}/hungry")["status"].get("containerStatuses")
        return found[0] if found else {}

    eventually(lambda: "running" in status().get("state", {}), within=60)
    said = own.kedge("faults", "oom-kill", "hungry", "-c=main", which)
    assert said == "container main of pod/hungry OOM-killed\n"
    # As if the kernel had done it: the reason, the code of SIGKILL, and a restart.
    eventually(lambda: status()["restartCount"] == 1, within=60)
    ended = status()["lastState"]["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)
    eventually(lambda: "running" in status()["state"], within=60)
    refused = own.fails("faults", "oom-kill", "hungry", "-c=other", which)
    assert 'pod "hungry" has no container "other"' in refused
    api.delete(f"{PODS}/hungry")


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
