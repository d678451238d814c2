"""DaemonSets with real pods: nodes that change, come and go; rollouts; pods that fail."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.conftest import Api, Json, Kubectl, OwnCluster

PATIENCE = 60.0


def daemon_set(**pod: Any) -> Json:
    container = {"name": "main", "image": "host", "command": ["sleep", "1000"]}
    spec = {"terminationGracePeriodSeconds": 1, "containers": [container], **pod}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {"metadata": {"labels": {"app": "agent"}}, "spec": spec},
        },
    }


class Daemons:
    """One DaemonSet and its pods."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.sets = f"/apis/apps/v1/namespaces/{namespace}/daemonsets"
        self.path = f"{self.sets}/agent"
        self.pods = f"/api/v1/namespaces/{namespace}/pods"

    def count(self, name: str) -> int:
        found: int = self.api.get(self.path)["status"].get(name, 0)
        return found

    def listed(self) -> list[Json]:
        found: list[Json] = self.api.get(self.pods)["items"]
        return [each for each in found if "deletionTimestamp" not in each["metadata"]]

    def nodes(self) -> list[str]:
        return sorted(each["spec"].get("nodeName", "") for each in self.listed())


@pytest.fixture
def daemons(api: Api, namespace: str) -> Daemons:
    return Daemons(api, namespace)


@pytest.fixture
def ghost(api: Api) -> Iterator[str]:
    """A node that says it is ready and runs nothing."""
    name = f"ghost-{uuid.uuid4().hex[:6]}"
    conditions = [{"type": "Ready", "status": "True", "reason": "Said", "message": ""}]
    room = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    status = {"conditions": conditions, "capacity": room, "allocatable": room}
    api.create("/api/v1/nodes", {"metadata": {"name": name}, "status": status})
    yield name
    if api.exists(f"/api/v1/nodes/{name}"):
        api.delete(f"/api/v1/nodes/{name}")


def test_a_rollout_and_back(any_kubectl: Kubectl, daemons: Daemons) -> None:
    daemons.api.create(daemons.sets, daemon_set())
    any_kubectl("rollout status daemonset/agent --timeout=40s")
    (first,) = daemons.listed()
    any_kubectl("set env daemonset/agent COLOUR=blue")
    any_kubectl("rollout status daemonset/agent --timeout=40s")
    (second,) = daemons.listed()
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    history = any_kubectl.says("rollout history daemonset/agent").splitlines()
    assert [line.split()[0] for line in history[2:]] == ["1", "2"]
    any_kubectl("rollout undo daemonset/agent")
    any_kubectl("rollout status daemonset/agent --timeout=40s")
    (third,) = daemons.listed()
    assert "env" not in third["spec"]["containers"][0]
    assert third["metadata"]["uid"] != second["metadata"]["uid"]


def test_labels_of_a_node_decide(
    daemons: Daemons, node: Json, namespace: str, eventually: Callable[..., Any]
) -> None:
    api, name = daemons.api, node["metadata"]["name"]
    api.create(daemons.sets, daemon_set(nodeSelector={namespace: "yes"}))
    eventually(lambda: api.get(daemons.path)["status"].get("observedGeneration") == 1)
    assert daemons.listed() == []
    api.merge(f"/api/v1/nodes/{name}", {"metadata": {"labels": {namespace: "yes"}}})
    eventually(lambda: daemons.count("numberReady") == 1, PATIENCE)
    assert daemons.nodes() == [name]
    api.merge(f"/api/v1/nodes/{name}", {"metadata": {"labels": {namespace: None}}})
    eventually(lambda: not api.get(daemons.pods)["items"], PATIENCE)
    assert daemons.count("desiredNumberScheduled") == 0


def test_a_failed_pod_is_replaced_and_it_is_told(
    any_kubectl: Kubectl, daemons: Daemons, eventually: Callable[..., Any]
) -> None:
    api = daemons.api
    api.create(daemons.sets, daemon_set())
    eventually(lambda: daemons.count("numberReady") == 1, PATIENCE)
    (first,) = daemons.listed()
    name = first["metadata"]["name"]
    evicted = {"status": {"phase": "Failed", "reason": "Evicted"}}
    api.merge(f"{daemons.pods}/{name}/status", evicted)
    eventually(
        lambda: [each["metadata"]["name"] for each in daemons.listed()] not in ([name], []),
        PATIENCE,
    )
    eventually(lambda: daemons.count("numberReady") == 1, PATIENCE)
    assert f"Found failed daemon pod {any_kubectl.namespace}/{name}" in any_kubectl.says(
        "describe daemonset agent"
    )


def test_a_node_that_comes_gets_a_pod_and_one_that_vanishes_is_not_counted(
    daemons: Daemons, node: Json, ghost: str, eventually: Callable[..., Any]
) -> None:
    api = daemons.api
    api.create(daemons.sets, daemon_set())
    both = sorted([ghost, node["metadata"]["name"]])
    eventually(lambda: daemons.nodes() == both, PATIENCE)
    eventually(lambda: daemons.count("desiredNumberScheduled") == 2, PATIENCE)
    api.delete(f"/api/v1/nodes/{ghost}")
    eventually(lambda: daemons.count("desiredNumberScheduled") == 1, PATIENCE)
    eventually(lambda: daemons.count("numberReady") == 1, PATIENCE)


@pytest.mark.skipif(
    "KEDGE_E2E_KUBECONFIG" in os.environ, reason="the cluster must be our own to kill it"
)
def test_a_rollout_goes_on_when_the_server_was_killed_in_the_middle(
    own_cluster: OwnCluster, eventually: Callable[..., Any]
) -> None:
    daemons = Daemons(own_cluster.up("--nodes=2").api, "default")
    daemons.api.create(daemons.sets, daemon_set())
    eventually(lambda: daemons.count("numberAvailable") == 2, PATIENCE)
    before = {each["metadata"]["uid"] for each in daemons.listed()}
    container = {"name": "main", "image": "host", "command": ["sleep", "2000"]}
    change = {"spec": {"template": {"spec": {"containers": [container]}}}}
    daemons.api.merge(daemons.path, change)
    eventually(lambda: daemons.count("updatedNumberScheduled") == 1, PATIENCE)
    own_cluster.kill()
    own_cluster.kedge(
        "up", *own_cluster.which, f"--kubeconfig={own_cluster.kubeconfig}", "--nodes=2"
    )
    eventually(
        lambda: (
            (daemons.count("updatedNumberScheduled"), daemons.count("numberAvailable")) == (2, 2)
        ),
        PATIENCE,
    )
    after = {each["metadata"]["uid"] for each in daemons.listed()}
    assert len(after) == 2
    assert not after & before
    assert daemons.nodes() == ["node-1", "node-2"]
