"""Budgets, drains and nodes that vanish, with pods that run on two nodes."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kedge.cli.cluster import process

Json = dict[str, Any]

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
GRACE = 15
"""Seconds of silence that are too many here; nodes say something every ten."""

pytestmark = pytest.mark.skipif(
    "KEDGE_E2E_KUBECONFIG" in os.environ or not shutil.which("kubectl"),
    reason="the cluster must be our own to take its nodes away",
)


class Site:
    """A cluster of two nodes, one of which can be taken away and given back."""

    def __init__(self, own: Any, eventually: Callable[..., Any]) -> None:
        self.own = own
        self.eventually = eventually
        # What is taken away stays away.
        grace = f"--node-monitor-grace-period={GRACE}s"
        self.flags = ("--nodes=2", grace, "--restart=never")
        self.api = own.up(*self.flags).api

    def signal(self, node: str, number: signal.Signals) -> None:
        found = process.running(self.own.state / "nodes" / node, "node")
        assert found is not None
        os.kill(found.pid, number)

    def revive(self) -> None:
        self.own.kedge("up", *self.own.which, f"--kubeconfig={self.own.kubeconfig}", *self.flags)

    def kubectl(self, *words: str) -> "subprocess.CompletedProcess[str]":
        command = ["kubectl", f"--kubeconfig={self.own.kubeconfig}", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def deploy(self, name: str, replicas: int, *, patience: int = 300) -> None:
        """Some pods that are spread over the nodes, and put up with a lost one for a while."""
        labels = {"app": name}
        spread = {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": labels},
        }
        lost = {"key": "node.kubernetes.io/unreachable", "operator": "Exists"}
        lost |= {"effect": "NoExecute", "tolerationSeconds": patience}  # type: ignore[dict-item]
        command = ["sh", "-c", "trap exit TERM; while :; do sleep 0.1; done"]
        spec = {
            "terminationGracePeriodSeconds": 1,
            "topologySpreadConstraints": [spread],
            "tolerations": [lost],
            "containers": [{"name": "main", "image": "host", "command": command}],
        }
        template = {"metadata": {"labels": labels}, "spec": spec}
        body = {
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": template,
            },
        }
        self.api.create("/apis/apps/v1/namespaces/default/deployments", body)
        self.eventually(lambda: len(self.ready(name)) == replicas, 40.0)

    def pods(self, name: str) -> list[Json]:
        found: list[Json] = self.api.get(f"{PODS}?labelSelector=app={name}")["items"]
        return found

    def ready(self, name: str) -> list[Json]:
        return [
            pod
            for pod in self.pods(name)
            if "deletionTimestamp" not in pod["metadata"] and condition(pod, "Ready") == "True"
        ]

    def places(self, name: str) -> set[str]:
        return {pod["spec"]["nodeName"] for pod in self.ready(name)}

    def node(self, name: str) -> Json:
        found: Json = self.api.get(f"{NODES}/{name}")
        return found

    def addresses(self, name: str, *, ready: bool = True) -> set[str]:
        """Where a service is to be had."""
        path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
        slices = self.api.get(f"{path}?labelSelector=kubernetes.io/service-name={name}")["items"]
        return {
            address
            for slice_ in slices
            for each in slice_["endpoints"]
            if each["conditions"]["ready"] is ready
            for address in each["addresses"]
        }


def condition(obj: Json, type_: str) -> str:
    found = obj["status"].get("conditions", ())
    return next((each["status"] for each in found if each["type"] == type_), "")


def taints(node: Json) -> set[tuple[str, str]]:
    return {
        (each["key"].rpartition("/")[2], each["effect"]) for each in node["spec"].get("taints", ())
    }


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory, own_clusters: Any) -> Iterator[Any]:
    made = own_clusters.own(tmp_path_factory.mktemp("two"))
    yield made
    made.down()


@pytest.fixture
def site(own: Any, eventually: Callable[..., Any]) -> Site:
    return Site(own, eventually)


def test_a_drain_heeds_the_budget(site: Site) -> None:
    site.deploy("web", 4)
    selector = {"matchLabels": {"app": "web"}}
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    budget = {"metadata": {"name": "web"}, "spec": {"minAvailable": "75%", "selector": selector}}
    site.api.create(budgets, budget)

    def allowed() -> int:
        status = site.api.get(f"{budgets}/web").get("status", {})
        return int(status.get("disruptionsAllowed", 0))

    site.eventually(lambda: allowed() == 1, 10.0)
    least = 4

    drain = subprocess.Popen(
        [
            "kubectl",
            f"--kubeconfig={site.own.kubeconfig}",
            "drain",
            "node-2",
            "--timeout=60s",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    while drain.poll() is None:
        least = min(least, len(site.ready("web")))
    said, _ = drain.communicate()
    assert drain.returncode == 0, said
    assert "Cannot evict pod as it would violate the pod's disruption budget." in said
    assert least >= 3
    assert site.places("web") == {"node-1"}
    assert ("unschedulable", "NoSchedule") in taints(site.node("node-2"))
    assert site.kubectl("uncordon", "node-2").returncode == 0
    site.eventually(lambda: not taints(site.node("node-2")), 10.0)


KEEPER = "echo $NODE >> /data/nodes; trap exit TERM; while :; do sleep 0.1; done"


def keeper() -> Json:
    """A pod with a claim, which notes the nodes that it has been on."""
    labels = {"app": "keeper"}
    container = {
        "name": "main",
        "image": "host",
        "command": ["sh", "-c", KEEPER],
        "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    claimed = [{"name": "data", "persistentVolumeClaim": {"claimName": "kept"}}]
    spec = {"terminationGracePeriodSeconds": 1, "containers": [container], "volumes": claimed}
    template = {"metadata": {"labels": labels}, "spec": spec}
    wanted = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": "keeper"}, "spec": wanted}


def test_a_drain_moves_a_pod_with_its_claim(site: Site, tmp_path: Path) -> None:
    storage = {"storageClassName": "", "accessModes": ["ReadWriteOnce"]}
    shared = {"path": str(tmp_path / "kept"), "type": "DirectoryOrCreate"}
    volume = {**storage, "capacity": {"storage": "1Gi"}, "hostPath": shared}
    site.api.create("/api/v1/persistentvolumes", {"metadata": {"name": "kept"}, "spec": volume})
    claim = {**storage, "resources": {"requests": {"storage": "1Gi"}}, "volumeName": "kept"}
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    site.api.create(claims, {"metadata": {"name": "kept"}, "spec": claim})
    site.api.create("/apis/apps/v1/namespaces/default/deployments", keeper())
    (first,) = site.eventually(lambda: site.places("keeper"), 40.0)
    drained = site.kubectl("drain", first, "--pod-selector=app=keeper", "--timeout=50s")
    assert drained.returncode == 0, drained.stderr
    (second,) = site.eventually(lambda: site.places("keeper") - {first}, 40.0)
    noted = tmp_path / "kept" / "nodes"
    site.eventually(lambda: noted.read_text().split() == [first, second])
    assert site.kubectl("uncordon", first).returncode == 0
    site.eventually(lambda: not taints(site.node(first)), 10.0)


def test_a_node_that_pauses_is_not_ready_for_a_while_and_loses_nothing(site: Site) -> None:
    site.deploy("calm", 2)
    service = {"selector": {"app": "calm"}, "ports": [{"port": 80}]}
    site.api.create(
        "/api/v1/namespaces/default/services", {"metadata": {"name": "calm"}, "spec": service}
    )
    assert site.places("calm") == {"node-1", "node-2"}
    before = {pod["metadata"]["uid"] for pod in site.pods("calm")}
    site.eventually(lambda: len(site.addresses("calm")) == 2, 10.0)
    site.signal("node-2", signal.SIGSTOP)
    try:
        site.eventually(lambda: condition(site.node("node-2"), "Ready") == "Unknown", GRACE + 20.0)
        lost = {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}
        site.eventually(lambda: taints(site.node("node-2")) == lost, 10.0)
        site.eventually(lambda: site.places("calm") == {"node-1"}, 10.0)
        site.eventually(lambda: len(site.addresses("calm")) == 1, 10.0)
    finally:
        site.signal("node-2", signal.SIGCONT)
    site.eventually(lambda: condition(site.node("node-2"), "Ready") == "True", 30.0)
    site.eventually(lambda: not taints(site.node("node-2")), 10.0)
    site.eventually(lambda: len(site.addresses("calm")) == 2, 20.0)
    assert {pod["metadata"]["uid"] for pod in site.ready("calm")} == before


def test_pods_of_a_node_that_vanishes_come_up_elsewhere(site: Site) -> None:
    site.deploy("moving", 2, patience=2)
    assert site.places("moving") == {"node-1", "node-2"}
    site.signal("node-2", signal.SIGKILL)
    try:
        site.eventually(
            lambda: [pod["spec"]["nodeName"] for pod in site.ready("moving")] == ["node-1"] * 2,
            GRACE + 40.0,
        )
        [lost] = [pod for pod in site.pods("moving") if pod["spec"]["nodeName"] == "node-2"]
        [why] = [
            each for each in lost["status"]["conditions"] if each["type"] == "DisruptionTarget"
        ]
        assert why["reason"] == "DeletionByTaintManager"
    finally:
        site.revive()
    site.eventually(lambda: condition(site.node("node-2"), "Ready") == "True", 30.0)
    site.eventually(lambda: len(site.pods("moving")) == 2, 20.0)
