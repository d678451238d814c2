"""Replicas that follow what pods really use, up and down."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import Api, Kubectl

Json = dict[str, Any]

SLOW = 60.0
"""Seconds: pods count once they have been measured for a while, and are looked at every quarter
of a minute."""

# Works as long as there is a file that says so.
WORK = """
while true; do
    if [ -e /load/on ]; then i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done
    else sleep 0.2; fi
done
"""


def workload(load: Path) -> Json:
    """A Deployment whose pods may use more than they request."""
    container = {
        "name": "main",
        "image": "host",
        "command": ["sh", "-c", WORK],
        "volumeMounts": [{"name": "load", "mountPath": "/load"}],
        "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "150m"}},
    }
    spec = {
        "terminationGracePeriodSeconds": 0,
        "volumes": [{"name": "load", "hostPath": {"path": str(load)}}],
        "containers": [container],
    }
    template = {"metadata": {"labels": {"app": "busy"}}, "spec": spec}
    selector = {"matchLabels": {"app": "busy"}}
    return {"metadata": {"name": "busy"}, "spec": {"selector": selector, "template": template}}


def autoscaler(**metric: str) -> Json:
    target = {"type": "Utilization", "averageUtilization": 50}
    source = {"type": "Resource", "resource": {"name": "cpu", "target": target, **metric}}
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "busy"}
    spec = {
        "scaleTargetRef": reference,
        "minReplicas": 1,
        "maxReplicas": 3,
        "metrics": [source],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
    }
    return {"metadata": {"name": "busy"}, "spec": spec}


def test_replicas_follow_a_real_load_up_and_down(
    api: Api, namespace: str, full_level: None, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    tmp_path.chmod(0o755)
    load = tmp_path / "load"
    load.mkdir(mode=0o755)
    (load / "on").touch()
    deployments = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    scalers = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
    api.create(deployments, workload(load))
    api.create(scalers, autoscaler(window="10s", statistic="95th"))

    def ready() -> int:
        return int(api.get(f"{deployments}/busy")["status"].get("readyReplicas", 0))

    eventually(lambda: ready() == 3, SLOW)
    measured = api.get(f"{scalers}/busy")["status"]["currentMetrics"][0]["resource"]["current"]
    assert measured["averageUtilization"] >= 100
    (load / "on").unlink()
    eventually(lambda: ready() == 1, SLOW)
    found = api.get(f"/api/v1/namespaces/{namespace}/events")["items"]
    told = [each["message"] for each in found if each["reason"] == "SuccessfulRescale"]
    above = "cpu resource utilization (percentage of request) above target"
    assert told == [
        f"New size: 3; reason: {above}",
        "New size: 1; reason: All metrics below target",
    ]


def test_kubectl_makes_an_autoscaler(any_kubectl: Kubectl) -> None:
    any_kubectl("create deployment web --image=host -- sleep 1000")
    # Newer ones write --cpu=60%, and still take this.
    any_kubectl("autoscale deployment web --min=2 --max=5 --cpu-percent=60")
    found = any_kubectl.json("get hpa.v2.autoscaling web")
    assert found["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 60
    any_kubectl("wait --for=jsonpath={.spec.replicas}=2 deployment/web")
    any_kubectl("wait --for=condition=Available deployment/web")
