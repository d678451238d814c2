"""`kubectl wait` for conditions, values, creation and deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.e2e.conftest import Api, Kubectl


def ready(status: str) -> dict[str, object]:
    return {"status": {"conditions": [{"type": "Ready", "status": status}]}}


def test_for_a_condition(kubectl: Kubectl, api: Api) -> None:
    kubectl("run web --image=nginx")
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/web"
    with kubectl.start("wait --for=condition=Ready pod/web --timeout=20s") as lines:
        api.merge(f"{path}/status", ready("False"))
        api.merge(f"{path}/status", ready("True"))
        assert lines.next() == "pod/web condition met"
        assert lines.command.wait(10) == 0
    assert kubectl.says("wait --for=condition=Ready pods --all --timeout=5s") == (
        "pod/web condition met"
    )
    assert kubectl.fails("wait --for=condition=Ready=false pod/web --timeout=1s") == (
        "error: timed out waiting for the condition on pods/web\n"
    )


def test_for_a_value(kubectl: Kubectl, api: Api) -> None:
    kubectl("run web --image=nginx")
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/web"
    with kubectl.start(
        "wait --for=jsonpath={.status.phase}=Running pod/web --timeout=20s"
    ) as lines:
        api.merge(f"{path}/status", {"status": {"phase": "Running"}})
        assert lines.next() == "pod/web condition met"
    assert kubectl("wait --for=jsonpath={.status.qosClass} pod/web --timeout=5s")


def test_for_deletion(kubectl: Kubectl, api: Api) -> None:
    kubectl("create configmap one")
    path = f"/api/v1/namespaces/{kubectl.namespace}/configmaps/one"
    with kubectl.start("wait --for=delete cm/one --timeout=20s -v=6") as lines:
        lines.until("watch=true")
        api.delete(path)
        assert lines.until("condition met") == "configmap/one condition met"
    assert kubectl("wait --for=delete cm/one --timeout=5s").returncode == 0


def test_for_creation(kubectl: Kubectl, api: Api) -> None:
    with kubectl.start("wait --for=create cm/one --timeout=20s") as lines:
        api.create(
            f"/api/v1/namespaces/{kubectl.namespace}/configmaps", {"metadata": {"name": "one"}}
        )
        assert lines.next() == "configmap/one condition met"


def test_for_what_is_not_there(kubectl: Kubectl) -> None:
    assert kubectl.fails("wait --for=condition=Ready pod/ghost --timeout=1s") == (
        'Error from server (NotFound): pods "ghost" not found\n'
    )


def test_rollout_status(kubectl: Kubectl, api: Api) -> None:
    kubectl("create deployment web --image=nginx --replicas=0")
    path = f"/apis/apps/v1/namespaces/{kubectl.namespace}/deployments/web/status"
    with kubectl.start("rollout status deployment/web --timeout=20s") as lines:
        api.merge(path, {"status": {"observedGeneration": 1}})
        assert lines.until("successfully rolled out") == (
            'deployment "web" successfully rolled out'
        )
