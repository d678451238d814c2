"""The directory of volume drivers, as pods with stock manifests use it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(
    "KEDGE_E2E_KUBECONFIG" in os.environ, reason="the cluster must be our own to look at its files"
)

PODS = "/api/v1/namespaces/default/pods"
KUBELET = "/var/lib/kubelet"
DRIVER = f"mount -t tmpfs t {KUBELET}/pods/v && echo data > {KUBELET}/pods/v/file && sleep 3600"


def pod(name: str, command: str, propagation: str) -> dict[str, Any]:
    mount = {"name": "kubelet", "mountPath": KUBELET, "mountPropagation": propagation}
    container = {
        "name": "c",
        "image": "host",
        "command": ["sh", "-ec", command],
        "securityContext": {"privileged": True},
        "volumeMounts": [mount],
    }
    return {
        "metadata": {"name": name},
        "spec": {
            "containers": [container],
            "volumes": [{"name": "kubelet", "hostPath": {"path": KUBELET, "type": "Directory"}}],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
        },
    }


def mounts_below(place: Path) -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [each.split()[4] for each in lines if each.split()[4].startswith(f"{place}/")]


def test_mounts_of_a_driver_in_a_pod_reach_other_pods_and_go_with_the_cluster(
    own_cluster: Any, eventually: Callable[..., Any]
) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounts that reach the machine take root")
    kubelet = own_cluster.home / "kubelet"
    api = own_cluster.up("--nodes=1", f"--device-plugin-dir={kubelet}").api
    (kubelet / "pods/v").mkdir(parents=True)
    api.create(PODS, pod("driver", DRIVER, "Bidirectional"))
    eventually((kubelet / "pods/v/file").exists)
    user = pod("user", f'test "$(cat {KUBELET}/pods/v/file)" = data', "HostToContainer")
    api.create(PODS, user)
    eventually(lambda: api.get(f"{PODS}/user")["status"]["phase"] == "Succeeded")
    own_cluster.kedge("down", *own_cluster.which)
    assert mounts_below(own_cluster.home) == []
    assert not (kubelet / "pods/v/file").exists()
