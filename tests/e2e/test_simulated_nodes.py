"""Simulated nodes beside a real one: what docs/simulated-nodes.md promises, with kubectl."""

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kedge

PATIENCE = 60.0
"""Seconds in which anything must happen, on a busy machine too."""
PREFIX = "simulation.kedge.dev/"
TOLERATION = {"key": f"{PREFIX}node", "operator": "Exists", "effect": "NoSchedule"}

SCALER = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 2
  maxReplicas: 20
  metrics:
  - type: Resource
    resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}
"""


@pytest.fixture(scope="module")
def c() -> Iterator[kedge.Cluster]:
    settings = {"simulated_nodes": 3, "simulated_node_resources": {"cpu": 8}, "testing": True}
    with kedge.Cluster(nodes=1, wait=PATIENCE, **settings) as running:
        yield running


def deployment(name: str, replicas: int = 1, **annotations: str) -> dict[str, Any]:
    """A Deployment that runs on simulated nodes only; underscores stand for dashes."""
    marks = {PREFIX + key.replace("_", "-"): value for key, value in annotations.items()}
    resources = {"requests": {"cpu": "500m"}}
    spec = {
        "containers": [{"name": "main", "image": "app:1", "resources": resources}],
        "tolerations": [TOLERATION],
        "nodeSelector": {f"{PREFIX}node": "true"},
    }
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels, "annotations": marks}, "spec": spec},
        },
    }


def pods(c: kedge.Cluster, name: str) -> list[dict[str, Any]]:
    return c.list("pods", labels=f"app={name}")


def top(c: kedge.Cluster, *arguments: str) -> str:
    """Return the usage that kubectl shows; empty before the first report."""
    return c.kubectl("top", *arguments, check=False)


def refused(c: kedge.Cluster, *command: str) -> str:
    """Return the error of a command of kubectl."""
    done = subprocess.run(
        ["kubectl", f"--kubeconfig={c.kubeconfig}", *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode
    return done.stderr


def test_pods_run_on_both_sorts_of_nodes(c: kedge.Cluster) -> None:
    nodes = {each["metadata"]["name"]: each for each in c.list("nodes")}
    assert sorted(nodes) == ["node-1", "simulated-1", "simulated-2", "simulated-3"]
    assert nodes["simulated-1"]["status"]["allocatable"]["cpu"] == "8"
    c.apply(deployment("web", replicas=12, logs="hello", cpu="250m", memory="64Mi"))
    c.kubectl("run", "real", "--image=host", "--", "sleep", "1000")
    c.kubectl("rollout", "status", "deploy/web", f"--timeout={PATIENCE:.0f}s")
    c.wait("pod/real", "Ready", timeout=PATIENCE)
    assert c.get("pod/real")["spec"]["nodeName"] == "node-1"
    homes = {each["spec"]["nodeName"] for each in pods(c, "web")}
    assert homes == {"simulated-1", "simulated-2", "simulated-3"}


def test_logs_are_an_annotation_and_nothing_can_be_entered(c: kedge.Cluster) -> None:
    name = pods(c, "web")[0]["metadata"]["name"]
    assert c.kubectl("logs", name) == "hello\n"
    assert "is simulated: no container of its pods runs" in refused(c, "exec", name, "--", "ls")
    assert "is simulated" in refused(c, "port-forward", name, "18080:80")


def test_a_bad_annotation_is_refused(c: kedge.Cluster) -> None:
    with pytest.raises(kedge.StatusError, match="must be a whole number from 0 to 255"):
        c.apply(deployment("bad", exit_code="1000"))


def test_failures_are_pretended(c: kedge.Cluster, eventually: Callable[..., Any]) -> None:
    c.apply(deployment("crash", exit_code="3"))
    c.apply(deployment("pull", image_error="manifest unknown"))

    def waits(name: str) -> str:
        states = [each["status"].get("containerStatuses", [{}])[0] for each in pods(c, name)]
        return str([each.get("state", {}).get("waiting", {}).get("reason") for each in states])

    eventually(lambda: waits("crash") == "['CrashLoopBackOff']")
    eventually(lambda: waits("pull") in ("['ErrImagePull']", "['ImagePullBackOff']"))
    eventually(lambda: "manifest unknown" in c.kubectl("describe", "pods", "-l", "app=pull"))
    c.delete("deploy/crash")
    c.delete("deploy/pull")


def test_a_job_completes_and_is_deleted_when_its_time_has_come(c: kedge.Cluster) -> None:
    template = deployment("work", run_for="1h")["spec"]["template"]
    template["spec"]["restartPolicy"] = "Never"
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "work"}}
    c.apply({**job, "spec": {"template": template, "ttlSecondsAfterFinished": 600}})
    c.wait("job/work", lambda found: found["status"].get("ready") == 1, timeout=PATIENCE)
    c.clock.advance(hours=1)
    c.wait("job/work", "Complete", timeout=PATIENCE)
    c.clock.advance(minutes=10)
    c.wait("job/work", "deleted", timeout=PATIENCE)


def test_usage_scales_a_deployment(c: kedge.Cluster, eventually: Callable[..., Any]) -> None:
    eventually(lambda: "250m" in top(c, "pods", "-l", "app=web"), within=PATIENCE)
    assert "simulated-1" in top(c, "nodes")
    c.apply(SCALER)
    # 250m is 50 % of the request, so that 12 pods are enough; 500m need twice as many.
    c.kubectl("annotate", "pods", "-l", "app=web", "--overwrite", f"{PREFIX}cpu=500m")

    def scaled() -> bool:
        c.clock.advance(seconds=30)
        return bool(c.get("deploy/web")["spec"]["replicas"] == 20)

    eventually(scaled, within=PATIENCE)
    eventually(lambda: c.get("deploy/web")["status"].get("readyReplicas") == 20)


def test_an_autoscaler_waits_before_it_scales_down(
    c: kedge.Cluster, eventually: Callable[..., Any]
) -> None:
    c.kubectl("annotate", "pods", "-l", "app=web", "--overwrite", f"{PREFIX}cpu=50m")
    c.clock.advance(minutes=1)
    eventually(lambda: "500m" not in top(c, "pods", "-l", "app=web"), within=PATIENCE)
    c.clock.advance(seconds=30)
    assert c.get("deploy/web")["spec"]["replicas"] == 20

    def replicas_later() -> int:
        # In small steps: after five more minutes, the next scaling down would follow.
        c.clock.advance(seconds=30)
        return int(c.get("deploy/web")["spec"]["replicas"])

    eventually(lambda: replicas_later() < 20, within=PATIENCE)
    assert c.get("deploy/web")["spec"]["replicas"] == 4


def test_a_node_of_ones_own_is_simulated(c: kedge.Cluster) -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "gpu-1", "labels": {f"{PREFIX}node": "true", "gpu": "yes"}},
        "status": {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "10", "example.com/gpu": "2"}},
    }
    subprocess.run(
        ["kubectl", f"--kubeconfig={c.kubeconfig}", "create", "-f", "-"],
        input=json.dumps(node),
        text=True,
        check=True,
        capture_output=True,
    )
    c.wait("node/gpu-1", "Ready", timeout=PATIENCE)
    wanted = deployment("train")
    pod = wanted["spec"]["template"]["spec"]
    pod["containers"][0]["resources"] = {"limits": {"example.com/gpu": "2"}}
    c.apply(wanted)
    c.wait("deploy/train", "Available", timeout=PATIENCE)
    assert pods(c, "train")[0]["spec"]["nodeName"] == "gpu-1"


def test_a_silent_node_is_not_ready_and_comes_back(
    c: kedge.Cluster, eventually: Callable[..., Any]
) -> None:
    rule = c.faults.add(user="system:node:simulated-2", drop=True)
    status = c.get("node/simulated-2")
    status["status"]["conditions"] = [
        {**each, "status": "Unknown"} if each["type"] == "Ready" else each
        for each in status["status"]["conditions"]
    ]
    c.patch("node/simulated-2", {"status": status["status"]}, subresource="status")
    c.wait("node/simulated-2", "Ready=Unknown", timeout=PATIENCE)
    c.faults.remove(rule)
    c.wait("node/simulated-2", "Ready", timeout=PATIENCE)
