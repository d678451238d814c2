"""Deployments, ReplicaSets and ReplicationControllers with real pods, as kubectl drives them."""

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Json = dict[str, Any]

LASTS = "exec sleep 1000"


def deployment(script: str = LASTS, *, replicas: int = 2, **spec: Any) -> Json:
    """Its pods have one container `main`, which runs a script; `pod` says more about them."""
    container = {"name": "main", "image": "host", "command": ["sh", "-c", script]}
    pod = {"terminationGracePeriodSeconds": 1, "containers": [container], **spec.pop("pod", {})}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod}
    selector = {"matchLabels": {"app": "web"}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": selector, "template": template, **spec},
    }


def running(script: str) -> Json:
    """A patch after which the pods run another script."""
    container = {"name": "main", "command": ["sh", "-c", script]}
    return {"spec": {"template": {"spec": {"containers": [container]}}}}


def roll(kubectl: Any, script: str) -> None:
    kubectl("patch", "deployment/web", "-p", json.dumps(running(script)))


def apply(kubectl: Any, document: Json) -> None:
    kubectl("apply -f -", input=json.dumps(document))


def done(kubectl: Any) -> str:
    """What `kubectl rollout status` says in the end."""
    said: str = kubectl.says("rollout status deployment/web --timeout=40s")
    return said.splitlines()[-1]


def names(kubectl: Any) -> set[str]:
    """The pods that are to stay."""
    found = kubectl.json("get pods -l app=web -o json")["items"]
    return {pod["metadata"]["name"] for pod in found if "deletionTimestamp" not in pod["metadata"]}


def condition(kubectl: Any, type_: str) -> tuple[str, str]:
    conditions = kubectl.json("get deployment web -o json")["status"]["conditions"]
    return next((each["status"], each["reason"]) for each in conditions if each["type"] == type_)


def test_a_deployment_comes_up_and_is_shown(any_kubectl: Any) -> None:
    kubectl = any_kubectl
    kubectl("create deployment web --image=host --replicas=2 -- sh -c 'exec sleep 1000'")
    kubectl("wait deployment/web --for=condition=Available --timeout=30s")
    assert done(kubectl) == 'deployment "web" successfully rolled out'
    [row] = kubectl.table("get deployments -o wide")
    assert {key: row[key] for key in ("NAME", "READY", "UP-TO-DATE", "AVAILABLE")} == {
        "NAME": "web",
        "READY": "2/2",
        "UP-TO-DATE": "2",
        "AVAILABLE": "2",
    }
    assert (row["CONTAINERS"], row["IMAGES"], row["SELECTOR"]) == ("host", "host", "app=web")
    [row] = kubectl.table("get replicasets -o wide")
    assert (row["DESIRED"], row["CURRENT"], row["READY"]) == ("2", "2", "2")
    mark = row["NAME"].removeprefix("web-")
    assert row["SELECTOR"] == f"app=web,pod-template-hash={mark}"
    assert all(name.startswith(f"web-{mark}-") for name in names(kubectl))
    described = kubectl.says("describe deployment web")
    assert f"Scaled up replica set web-{mark} from 0 to 2" in described
    assert "NewReplicaSetAvailable" in described


def test_a_rollout_is_made_undone_and_remembered(any_kubectl: Any) -> None:
    kubectl = any_kubectl
    apply(kubectl, deployment())
    done(kubectl)
    first = names(kubectl)
    kubectl("annotate deployment web kubernetes.io/change-cause=first")
    roll(kubectl, f": second; {LASTS}")
    kubectl("annotate deployment web kubernetes.io/change-cause=second --overwrite")
    assert done(kubectl) == 'deployment "web" successfully rolled out'
    assert len(names(kubectl)) == 2
    assert first.isdisjoint(names(kubectl))
    history = kubectl.says("rollout history deployment/web").splitlines()
    assert [line.split() for line in history[2:]] == [["1", "first"], ["2", "second"]]
    assert ": second" in kubectl.says("rollout history deployment/web --revision=2")

    assert kubectl.says("rollout undo deployment/web") == "deployment.apps/web rolled back"
    done(kubectl)
    history = kubectl.says("rollout history deployment/web").splitlines()
    assert [line.split()[0] for line in history[2:]] == ["2", "3"]
    found = kubectl.json("get deployment web -o json")
    assert found["spec"]["template"]["spec"]["containers"][0]["command"][-1] == LASTS
    kubectl("rollout undo deployment/web --to-revision=2")
    done(kubectl)
    assert len(kubectl.table("get replicasets")) == 2

    before = names(kubectl)
    kubectl("rollout restart deployment/web")
    done(kubectl)
    assert before.isdisjoint(names(kubectl))


def test_a_paused_rollout_waits(any_kubectl: Any) -> None:
    kubectl = any_kubectl
    apply(kubectl, deployment())
    done(kubectl)
    before = names(kubectl)
    kubectl("rollout pause deployment/web")
    kubectl("wait deployment/web --for=jsonpath={.status.observedGeneration}=2 --timeout=20s")
    assert condition(kubectl, "Progressing") == ("Unknown", "DeploymentPaused")
    kubectl("set env deployment/web COLOUR=blue")
    kubectl("scale deployment/web --replicas=3")
    kubectl("wait deployment/web --for=jsonpath={.status.readyReplicas}=3 --timeout=30s")
    assert before < names(kubectl)
    kubectl("rollout resume deployment/web")
    done(kubectl)
    assert before.isdisjoint(names(kubectl))
    assert len(names(kubectl)) == 3


def test_an_image_that_is_not_there_stops_a_rollout_and_no_pod(
    any_kubectl: Any, eventually: Callable[..., Any]
) -> None:
    kubectl = any_kubectl
    apply(kubectl, deployment(progressDeadlineSeconds=3, strategy={"type": "RollingUpdate"}))
    done(kubectl)
    before = names(kubectl)
    kubectl("set image deployment/web main=nowhere.invalid/none:1")
    said = kubectl.fails("rollout status deployment/web --timeout=40s")
    assert 'deployment "web" exceeded its progress deadline' in said
    assert condition(kubectl, "Progressing") == ("False", "ProgressDeadlineExceeded")
    assert condition(kubectl, "Available") == ("True", "MinimumReplicasAvailable")
    assert before < names(kubectl)
    kubectl("rollout undo deployment/web")
    done(kubectl)
    eventually(lambda: names(kubectl) == before)


def test_pods_that_crash_hold_a_rollout_up(
    any_kubectl: Any, eventually: Callable[..., Any]
) -> None:
    kubectl = any_kubectl
    apply(kubectl, deployment(minReadySeconds=2))
    done(kubectl)
    before = names(kubectl)
    roll(kubectl, "sleep 0.3; exit 1")

    def crashed() -> bool:
        pods = kubectl.json("get pods -l app=web -o json")["items"]
        statuses = [each for pod in pods for each in pod["status"].get("containerStatuses", ())]
        return any(each["restartCount"] for each in statuses)

    eventually(crashed, 30)
    found = kubectl.json("get deployment web -o json")["status"]
    assert (found["updatedReplicas"], found["availableReplicas"]) == (1, 2)
    assert before < names(kubectl)


def test_recreate_never_runs_old_and_new_together(any_kubectl: Any, tmp_path: Path) -> None:
    kubectl = any_kubectl
    told = tmp_path / "told"
    told.mkdir()
    told.chmod(0o777)
    volume = {"name": "told", "hostPath": {"path": str(told)}}
    mount = {"name": "told", "mountPath": "/told"}

    def script(version: str) -> str:
        # Says goodbye half a second after it was asked to go.
        last = f"trap 'sleep 0.5; rm /told/{version}-$HOSTNAME; exit 0' TERM; "
        other = "old" if version == "new" else "new"
        look = f"ls /told/{other}-* 2>/dev/null && touch /told/both; "
        return f"touch /told/{version}-$HOSTNAME; {look}{last}while :; do sleep 0.1; done"

    made = deployment(script("old"), strategy={"type": "Recreate"})
    pod = made["spec"]["template"]["spec"]
    pod |= {"volumes": [volume], "terminationGracePeriodSeconds": 10}
    pod["containers"][0]["volumeMounts"] = [mount]
    apply(kubectl, made)
    done(kubectl)
    roll(kubectl, script("new"))
    done(kubectl)
    assert not (told / "both").exists()
    assert sorted(each.name.partition("-")[0] for each in told.iterdir()) == ["new", "new"]


def test_a_replica_set_replaces_what_is_lost(
    any_kubectl: Any, eventually: Callable[..., Any]
) -> None:
    kubectl = any_kubectl
    made = deployment(replicas=2) | {"kind": "ReplicaSet"}
    apply(kubectl, made)
    kubectl("wait rs/web --for=jsonpath={.status.readyReplicas}=2 --timeout=30s")
    lost, kept = sorted(names(kubectl))
    kubectl(f"delete pod {lost} --now")
    eventually(lambda: lost not in names(kubectl) and len(names(kubectl)) == 2)
    assert kept in names(kubectl)
    kubectl("scale rs web --replicas=0")
    eventually(lambda: not names(kubectl))
    kubectl("scale rs web --replicas=1")
    kubectl("wait rs/web --for=jsonpath={.status.availableReplicas}=1 --timeout=30s")

    kubectl("delete rs web --cascade=orphan")
    [orphan] = names(kubectl)
    apply(kubectl, made | {"spec": {**made["spec"], "replicas": 1}})
    kubectl("wait rs/web --for=jsonpath={.status.readyReplicas}=1 --timeout=30s")
    assert names(kubectl) == {orphan}
    kubectl("delete rs web --cascade=foreground --timeout=30s")
    assert not names(kubectl)


def test_a_replication_controller_keeps_its_pods(
    any_kubectl: Any, eventually: Callable[..., Any]
) -> None:
    kubectl = any_kubectl
    template = deployment()["spec"]["template"]
    meta = {"name": "web"}
    made = {"apiVersion": "v1", "kind": "ReplicationController", "metadata": meta}
    apply(kubectl, made | {"spec": {"replicas": 2, "template": template}})
    kubectl("wait rc/web --for=jsonpath={.status.readyReplicas}=2 --timeout=30s")
    kubectl("scale rc web --replicas=1")
    eventually(lambda: len(names(kubectl)) == 1)
    [row] = kubectl.table("get rc")
    assert (row["DESIRED"], row["CURRENT"]) == ("1", "1")
    kubectl("delete rc web")
    eventually(lambda: not names(kubectl))


def test_deleting_a_deployment_takes_everything_along(
    any_kubectl: Any, eventually: Callable[..., Any]
) -> None:
    kubectl = any_kubectl
    apply(kubectl, deployment())
    done(kubectl)
    kubectl("delete deployment web")
    eventually(lambda: not kubectl.json("get rs,pods -o json")["items"], 30)


@pytest.mark.skipif(
    "KEDGE_E2E_KUBECONFIG" in os.environ, reason="the cluster must be our own to kill it"
)
def test_a_server_killed_in_the_middle_of_a_rollout_goes_on(
    own_cluster: Any, eventually: Callable[..., Any], tmp_path: Path
) -> None:
    """Again and again, and still no pod is made that was not needed."""
    replicas = 6
    told = tmp_path / "told"
    told.mkdir()
    told.chmod(0o777)
    api = own_cluster.up("--nodes=1").api
    path = "/apis/apps/v1/namespaces/default/deployments"
    script = f"echo $HOSTNAME >> /told/starts; {LASTS}"
    pace = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    made = deployment(f": first; {script}", replicas=replicas, strategy=pace, minReadySeconds=1)
    pod = made["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "told", "hostPath": {"path": str(told)}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "told", "mountPath": "/told"}]
    api.create(path, made)

    def complete() -> bool:
        found = api.get(f"{path}/web")
        status = found["status"]
        counts = [status.get(each) for each in ("updatedReplicas", "replicas", "availableReplicas")]
        observed = status.get("observedGeneration") == found["metadata"]["generation"]
        return observed and counts == [replicas] * 3

    def is_at(updated: int) -> bool:
        assert not complete()
        count: int = api.get(f"{path}/web")["status"].get("updatedReplicas", 0)
        return updated <= count < replicas

    eventually(complete, 40)
    pod["containers"][0]["command"][-1] = f": second; {script}"
    api.merge(f"{path}/web", {"spec": made["spec"]})
    for updated in (1, 3, 5):
        eventually(lambda count=updated: is_at(count), 60)
        own_cluster.kill()
        own_cluster.kedge(
            "up", *own_cluster.which, f"--kubeconfig={own_cluster.kubeconfig}", "--nodes=1"
        )
    eventually(complete, 60)

    starts = Counter((told / "starts").read_text().split())
    assert set(starts.values()) == {1}
    sets = api.get("/apis/apps/v1/namespaces/default/replicasets")["items"]
    assert sorted(each["spec"]["replicas"] for each in sets) == [0, replicas]
    made_by = Counter(name.rpartition("-")[0] for name in starts)
    assert made_by == {each["metadata"]["name"]: replicas for each in sets}


STUBBORN = "trap '' TERM; while :; do sleep 0.1; done"
"""A script that only SIGKILL ends, two seconds after SIGTERM."""


def failed(kubectl: Any) -> list[str]:
    found = kubectl.json("get pods -l app=web -o json")["items"]
    return [pod["status"]["reason"] for pod in found if pod["status"]["phase"] == "Failed"]


def test_a_pod_takes_the_place_of_one_without_a_grace_period(any_kubectl: Any) -> None:
    kubectl = any_kubectl
    [node] = kubectl.json("get nodes -o json")["items"]
    cpu = node["status"]["allocatable"]["cpu"]
    millis = int(cpu[:-1]) if cpu.endswith("m") else int(cpu) * 1000
    made = deployment(STUBBORN, replicas=1, strategy={"type": "Recreate"})
    pod = made["spec"]["template"]["spec"]
    pod["terminationGracePeriodSeconds"] = 0
    pod["containers"][0]["resources"] = {"requests": {"cpu": f"{millis * 7 // 10}m"}}
    pod["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 18080}]
    apply(kubectl, made)
    kubectl("wait deployment/web --for=condition=Available --timeout=30s")
    for _ in range(4):
        kubectl("rollout restart deployment/web")
        assert done(kubectl) == 'deployment "web" successfully rolled out'
    assert failed(kubectl) == []
    assert "WaitingForResources" in kubectl.says("get events")
