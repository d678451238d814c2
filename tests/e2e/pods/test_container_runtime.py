"""A cluster whose pods run in containerd or CRI-O instead of kedge's own runtime."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.pods.conftest import Pods, state_of, status_of

from kedge.cli.cluster import process
from kedge.testing import container_daemons
from kedge.testing.container_daemon import BOX, RuntimeDaemon

pytestmark = pytest.mark.skipif(
    "KEDGE_E2E_KUBECONFIG" in os.environ, reason="the cluster must be our own to have a runtime"
)

SERVE = "while true; do printf 'HTTP/1.0 200 OK\\r\\n\\r\\nhi\\n' | nc -l -p 8080; done"
ASK = "until wget -q -O - http://web.default.svc.cluster.local; do sleep 0.1; done"


@pytest.fixture(params=container_daemons.names())
def daemon(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RuntimeDaemon]:
    if reason := container_daemons.lacks(request.param):
        pytest.skip(reason)
    place = tmp_path_factory.mktemp(request.param)
    with container_daemons.running(request.param, place) as running:
        yield running


def of_box(**more: Any) -> dict[str, Any]:
    return {"container": {"image": BOX, **more}}


def agent_of(own: Any) -> Any:
    return process.running(own.state / "nodes" / "node-1", "node")


def test_pods_run_in_a_container_runtime(
    own_cluster: Any, daemon: RuntimeDaemon, eventually: Callable[..., Any], tmp_path: Path
) -> None:
    runtime = f"cri://{daemon.socket}"
    api = own_cluster.up("--nodes=1", f"--runtime={runtime}").api
    pods = Pods(api, "default", eventually)
    node = api.get("/api/v1/nodes/node-1")
    assert node["status"]["nodeInfo"]["containerRuntimeVersion"].startswith(f"{daemon.name}://")
    assert f"runtime {runtime}" in own_cluster.kedge("status", *own_cluster.which)

    # Services, names, limits, probes, volumes and exit codes.
    ports = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}
    api.create("/api/v1/namespaces/default/services", {"metadata": {"name": "web"}, "spec": ports})
    probe = {"exec": {"command": ["true"]}, "periodSeconds": 1}
    limits = {"limits": {"cpu": "500m", "memory": "64Mi"}}
    web = of_box(readinessProbe=probe, resources=limits)
    pods.create("web", SERVE, metadata={"labels": {"app": "web"}}, **web)
    running = pods.ready("web")
    assert status_of(running)["containerID"].startswith(f"{daemon.name}://")
    assert pods.says("client", ASK, **of_box()) == "hi"
    pods.create("code", "exit 3", restartPolicy="Never", **of_box())
    assert state_of(pods.over("code"))["terminated"]["exitCode"] == 3
    pods.create("files", restartPolicy="Never")
    message = pods.when(
        "files", lambda pod: "waiting" in state_of(pod) and state_of(pod)["waiting"].get("message")
    )
    assert "needs kedge's own runtime" in state_of(message)["waiting"]["message"]
    usage = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/web"
    eventually(lambda: api.serves(usage))

    # The agent, and then the runtime, are killed: the pod goes on, and both are found again.
    os.kill(agent_of(own_cluster).pid, signal.SIGKILL)
    eventually(lambda: agent_of(own_cluster) is not None)
    daemon.kill()
    daemon.start()
    assert pods.says("later", ASK, **of_box()) == "hi"
    assert status_of(pods.get("web"))["containerID"] == status_of(running)["containerID"]
    assert status_of(pods.get("web"))["restartCount"] == 0

    # Images belong to the runtime, and nothing is left of the pods.
    assert "images import FILE" in own_cluster.fails("image", "list", *own_cluster.which)
    pods.delete("web")
    pods.gone("web")
    own_cluster.kedge("down", *own_cluster.which, "--purge", "--yes")
    assert daemon.containers() == []
