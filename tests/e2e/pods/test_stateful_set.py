"""StatefulSets with real pods: numbers that reach containers, rollouts, crashes, a dead server."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.conftest import Api, Json, Kubectl, OwnCluster

PATIENCE = 60.0

SEED = """
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: web
spec:
  replicas: 2
  serviceName: web
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: host
        command: [sh, -c, 'echo $STATEFULSET_INDEX $PLAIN $LABEL $(hostname); exec sleep 1000']
        env:
          - name: STATEFULSET_INDEX
            valueFrom:
              fieldRef:
                fieldPath: metadata.annotations['spec.pod.beta.kubernetes.io/statefulset-index']
          - name: PLAIN
            valueFrom:
              fieldRef:
                fieldPath: metadata.annotations['pod.beta.kubernetes.io/statefulset-index']
          - name: LABEL
            valueFrom:
              fieldRef:
                fieldPath: metadata.labels['apps.kubernetes.io/pod-index']
"""


def stateful_set(script: str = "exec sleep 1000", replicas: int = 2, **spec: Any) -> Json:
    container = {"name": "main", "image": "host", "command": ["sh", "-c", script]}
    pod = {"terminationGracePeriodSeconds": 1, "containers": [container]}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "serviceName": "web",
            "selector": {"matchLabels": {"app": "web"}},
            "template": template,
            **spec,
        },
    }


def script(text: str) -> Json:
    container = {"name": "main", "image": "host", "command": ["sh", "-c", text]}
    return {"spec": {"template": {"spec": {"containers": [container]}}}}


def uids(pods: Any) -> dict[str, str]:
    found = pods.api.get(pods.path)["items"]
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in found}


def test_the_index_reaches_the_environment_of_the_container(
    any_kubectl: Kubectl, eventually: Callable[..., Any]
) -> None:
    any_kubectl("create", "-f=-", input=SEED)
    any_kubectl("rollout status statefulset/web --timeout=40s")
    assert any_kubectl.says("logs web-0") == "0 0 0 web-0"
    assert any_kubectl.says("logs web-1") == "1 1 1 web-1"


def test_a_rollout_forth_and_back_keeps_names_and_history(any_kubectl: Kubectl, pods: Any) -> None:
    any_kubectl("create", "-f=-", input=yaml.safe_dump(stateful_set()))
    any_kubectl("rollout status statefulset/web --timeout=40s")
    before = uids(pods)
    any_kubectl("set env statefulset/web COLOUR=blue")
    any_kubectl("rollout status statefulset/web --timeout=40s")
    between = uids(pods)
    assert between.keys() == before.keys() == {"web-0", "web-1"}
    assert not set(between.values()) & set(before.values())
    history = any_kubectl.says("rollout history statefulset/web").splitlines()
    assert [line.split()[0] for line in history[2:]] == ["1", "2"]
    any_kubectl("rollout undo statefulset/web")
    any_kubectl("rollout status statefulset/web --timeout=40s")
    (container,) = pods.get("web-1")["spec"]["containers"]
    assert "env" not in container
    any_kubectl("rollout restart statefulset/web")
    any_kubectl("rollout status statefulset/web --timeout=40s")
    history = any_kubectl.says("rollout history statefulset/web").splitlines()
    assert [line.split()[0] for line in history[2:]] == ["2", "3", "4"]


def test_a_set_grows_and_shrinks_in_order(
    any_kubectl: Kubectl, pods: Any, eventually: Callable[..., Any]
) -> None:
    any_kubectl("create", "-f=-", input=yaml.safe_dump(stateful_set(replicas=3)))
    any_kubectl("wait statefulset/web --for=jsonpath={.status.readyReplicas}=3 --timeout=40s")
    started = [pods.get(f"web-{i}")["metadata"]["creationTimestamp"] for i in range(3)]
    assert started == sorted(started)
    any_kubectl("scale statefulset/web --replicas=1")
    eventually(lambda: list(uids(pods)) == ["web-0"], PATIENCE)


def test_a_crashing_pod_stops_the_rollout_until_it_is_replaced(
    any_kubectl: Kubectl, api: Api, pods: Any, eventually: Callable[..., Any], about: Any
) -> None:
    path = f"/apis/apps/v1/namespaces/{pods.namespace}/statefulsets"
    # A container counts as ready while it runs, be it for a moment only.
    api.create(path, stateful_set(minReadySeconds=2))
    any_kubectl("wait statefulset/web --for=jsonpath={.status.availableReplicas}=2 --timeout=40s")
    untouched = uids(pods)["web-0"]
    api.merge(f"{path}/web", script("exit 7"))

    def has_crashed(pod: Json) -> bool:
        found = about.status(pod)
        return bool(found.get("restartCount", 0) >= 1 and not found["ready"])

    eventually(lambda: api.get(f"{path}/web")["status"].get("updatedReplicas") == 1, PATIENCE)
    pods.when("web-1", has_crashed, PATIENCE)
    assert uids(pods)["web-0"] == untouched
    api.merge(f"{path}/web", script("exec sleep 1000"))
    assert uids(pods)["web-0"] == untouched
    pods.delete("web-1")
    any_kubectl("wait statefulset/web --for=jsonpath={.status.availableReplicas}=2 --timeout=40s")
    assert uids(pods)["web-0"] == untouched, "its template is what it was"
    status = api.get(f"{path}/web")["status"]
    assert status["currentRevision"] == status["updateRevision"]


def test_claims_are_made_and_bound_on_the_node_of_their_pod(
    any_kubectl: Kubectl, pods: Any, eventually: Callable[..., Any]
) -> None:
    wish = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    templates = [{"metadata": {"name": "data"}, "spec": wish}]
    manifest = stateful_set(volumeClaimTemplates=templates)
    any_kubectl("create", "-f=-", input=yaml.safe_dump(manifest))
    any_kubectl("wait pvc/data-web-0 --for=jsonpath={.status.phase}=Bound --timeout=40s")
    claim = any_kubectl.json("get persistentvolumeclaims data-web-0")
    assert claim["spec"]["storageClassName"] == "standard"
    assert claim["status"]["capacity"] == {"storage": "1Gi"}
    eventually(lambda: pods.api.get(f"{pods.path}/web-0")["spec"].get("nodeName"), PATIENCE)


@pytest.mark.skipif(
    "KEDGE_E2E_KUBECONFIG" in os.environ, reason="the cluster must be our own to kill it"
)
def test_a_rollout_goes_on_when_the_server_was_killed_in_the_middle(
    own_cluster: OwnCluster, own_pods: Callable[[Any, str], Any], eventually: Callable[..., Any]
) -> None:
    api = own_cluster.up("--nodes=1").api
    pods = own_pods(api, "default")
    path = "/apis/apps/v1/namespaces/default/statefulsets"
    api.create(path, stateful_set(replicas=3))

    def status(name: str) -> Any:
        return api.get(f"{path}/web")["status"].get(name, 0)

    eventually(lambda: status("readyReplicas") == 3, PATIENCE)
    before = uids(pods)
    api.merge(f"{path}/web", script("exec sleep 2000"))
    eventually(lambda: status("updatedReplicas") == 1, PATIENCE)
    own_cluster.kill()
    own_cluster.kedge(
        "up", *own_cluster.which, f"--kubeconfig={own_cluster.kubeconfig}", "--nodes=1"
    )
    eventually(lambda: status("currentRevision") == status("updateRevision"), PATIENCE)
    after = uids(pods)
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())
    assert (status("readyReplicas"), status("updatedReplicas")) == (3, 3)
