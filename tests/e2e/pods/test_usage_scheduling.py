"""Pods go where there is room by what is really used, and `kedge why` says so."""

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from kedge.machinery.clock import SystemClock
from kedge.machinery.quantity import Quantity
from kedge.metrics.frame_codec import CONTENT_TYPE, path_of
from kedge.testing.reports import Used, report

Json = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
DECISIONS = "/apis/scheduling.kedge/v1alpha1/namespaces/default/schedulingdecisions"
MEASURED = "/apis/metrics/v1alpha1/namespaces/default/pods"
GB = 1e9


@pytest.fixture
def simulated(own_cluster: Any) -> Any:
    """Two nodes that nobody runs; what they use is said in their name."""
    cluster = own_cluster.up()
    for name in ("node-a", "node-b"):
        cluster.api.create("/api/v1/nodes", a_node(name))
    return cluster


def a_node(name: str) -> Json:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = {"allocatable": amounts, "capacity": amounts, "conditions": [ready]}
    return {"metadata": {"name": name}, "status": status}


def says(api: Any, node: str, machine: Used, pods: dict[tuple[str, str], Used]) -> None:
    """Report in the name of a node."""
    request = api.request(
        "POST",
        path_of(node),
        Impersonate_User=f"system:node:{node}",
        Impersonate_Group="system:nodes",
        Content_Type=CONTENT_TYPE,
    )
    request.data = report(node, SystemClock().now().timestamp(), machine, pods)
    api.open(request).close()


def placed(api: Any, eventually: Callable[..., Any], name: str, cpu: str = "", **spec: Any) -> Json:
    """A pod, once it has a node."""
    container: Json = {"name": "main", "image": "host", "command": ["sleep", "1000"]}
    if cpu:
        container["resources"] = {"requests": {"cpu": cpu}}
    body = {"containers": [container], "terminationGracePeriodSeconds": 0, **spec}
    api.create(PODS, {"metadata": {"name": name}, "spec": body})
    eventually(lambda: api.get(f"{PODS}/{name}")["spec"].get("nodeName"))
    pod: Json = api.get(f"{PODS}/{name}")
    return pod


def test_a_best_effort_pod_avoids_the_busy_node(
    simulated: Any, own_cluster: Any, eventually: Callable[..., Any]
) -> None:
    api, kubeconfig = simulated.api, f"--kubeconfig={own_cluster.kubeconfig}"
    says(api, "node-a", (3.5, GB), {})
    says(api, "node-b", (0.5, GB), {})
    homes = [placed(api, eventually, f"p{n}")["spec"]["nodeName"] for n in range(5)]
    assert homes == ["node-b"] * 5
    told = own_cluster.kedge("why", "p0", kubeconfig)
    assert "Node:       node-b" in told
    assert "NodeUsage x1" in told
    assert "1h mean" in told
    lines = {line.split()[0]: line.split() for line in told.splitlines() if "1h mean" in line}
    assert lines["node-a"][3] == "3500m"
    document = json.loads(own_cluster.kedge("why", "p0", kubeconfig, "-o=json"))
    assert document["nodes"][0]["name"] == document["boundTo"] == "node-b"


def test_history_counts_and_after_a_restart_the_pod_is_judged_anew(
    simulated: Any, own_cluster: Any, eventually: Callable[..., Any]
) -> None:
    api, kubeconfig = simulated.api, f"--kubeconfig={own_cluster.kubeconfig}"
    modest = placed(api, eventually, "modest", "100m", nodeName="node-a")["metadata"]["uid"]
    honest = placed(api, eventually, "honest", "1", nodeName="node-b")["metadata"]["uid"]
    says(api, "node-a", (1.0, GB), {("default/modest", modest): (3.0, GB / 4)})
    says(api, "node-b", (1.0, GB), {("default/honest", honest): (0.2, GB / 4)})
    assert placed(api, eventually, "after", "100m")["spec"]["nodeName"] == "node-b"
    assert "Decided:" in own_cluster.kedge("why", "after", kubeconfig)
    own_cluster.kill()
    api = own_cluster.up().api
    path = f"{DECISIONS}/after"
    eventually(lambda: api.serves(path))
    told = own_cluster.kedge("why", "after", kubeconfig)
    assert "not decided by this scheduler since it started" in told


def test_why_a_pod_waits(simulated: Any, own_cluster: Any, eventually: Callable[..., Any]) -> None:
    api, kubeconfig = simulated.api, f"--kubeconfig={own_cluster.kubeconfig}"
    big = {"name": "main", "image": "host", "resources": {"requests": {"cpu": "100"}}}
    api.create(PODS, {"metadata": {"name": "big"}, "spec": {"containers": [big]}})
    eventually(lambda: "Insufficient cpu" in str(api.get(f"{PODS}/big")["status"]))
    told = own_cluster.kedge("why", "pod/big", kubeconfig)
    assert "Node:       <none>" in told
    assert "node-a   refused by NodeResourcesFit: Insufficient cpu" in told


def test_a_pod_that_really_works_is_avoided(
    own_cluster: Any, own_pods: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    """Nothing simulated: two nodes measure what their pods use, of which one is busy."""
    api = own_cluster.up("--nodes=2").api
    pods = own_pods(api, "default")
    pods.create("busy", "while :; do :; done", nodeName="node-1")
    eventually(lambda: api.exists(f"{MEASURED}/busy"), 60.0)
    requests = {"resources": {"requests": {"cpu": "10m"}}}
    names = (f"quiet-{number}" for number in itertools.count())

    def with_usage() -> str:
        """Return a pod that was placed after the scheduler had read the usage."""
        pods.create(name := next(names), container=requests)
        pods.ready(name, 60.0)
        told = own_cluster.kedge("why", name, f"--kubeconfig={own_cluster.kubeconfig}")
        return name if "1h mean" in told else ""

    quiet = eventually(with_usage, 60.0)
    assert pods.get(quiet)["spec"]["nodeName"] == "node-2"


def test_nodes_of_one_machine_differ_by_what_their_pods_use(
    own_cluster: Any, eventually: Callable[..., Any], full_level: None
) -> None:
    api = own_cluster.up("--nodes=2").api
    spin = {"name": "main", "image": "host", "command": ["sh", "-c", "while :; do :; done"]}
    body = {"nodeName": "node-1", "containers": [spin], "terminationGracePeriodSeconds": 0}
    api.create(PODS, {"metadata": {"name": "busy"}, "spec": body})

    def busier() -> bool:
        found = {
            each["metadata"]["name"]: Quantity.parse(each["machine"]["10s"]["mean"]["cpu"]).milli()
            for each in api.get("/apis/metrics/v1alpha1/nodes")["items"]
        }
        return len(found) == 2 and found["node-1"] > found["node-2"] + 50

    eventually(busier, within=90)
