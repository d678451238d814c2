"""`kubectl delete` and what becomes of what was deleted, of what it owned, of what it held."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.conftest import Api, Kubectl

FINALIZER = "example.com/wait"


@pytest.fixture
def config_maps(api: Api, namespace: str) -> str:
    """Three config maps, and the path of them all."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    for name in ("one", "two", "three"):
        labels = {"even": str(name == "two").lower(), "of": "test"}
        api.create(path, {"metadata": {"name": name, "labels": labels}})
    return path


def owned(api: Api, namespace: str, *, blocking: bool = False) -> tuple[str, str]:
    """A config map that owns another one: the paths of the two."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    owner = api.create(path, {"metadata": {"name": "owner"}})
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": blocking,
    }
    api.create(path, {"metadata": {"name": "child", "ownerReferences": [reference]}})
    return f"{path}/owner", f"{path}/child"


def running_pod(api: Api, namespace: str) -> str:
    """A pod that some node has taken on, so that it has a grace period."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    container = {"name": "main", "image": "nginx"}
    spec = {"nodeName": "far-away", "containers": [container]}
    api.create(path, {"metadata": {"name": "web"}, "spec": spec})
    return f"{path}/web"


def test_by_name_selector_and_all(kubectl: Kubectl, config_maps: str) -> None:
    said = kubectl.says("delete cm one")
    assert said in (
        'configmap "one" deleted',
        f'configmap "one" deleted from {kubectl.namespace} namespace',
    )
    assert 'configmap "two" deleted' in kubectl.says("delete cm -l even=true")
    kubectl("delete cm --all")
    assert "three" not in kubectl.says("get cm -o name")
    assert kubectl.fails("delete cm one") == (
        'Error from server (NotFound): configmaps "one" not found\n'
    )
    assert kubectl("delete cm one --ignore-not-found").stdout == ""


def test_dry_runs_delete_nothing(kubectl: Kubectl, config_maps: str) -> None:
    assert "deleted (server dry run)" in kubectl.says("delete cm one --dry-run=server").replace(
        f" from {kubectl.namespace} namespace", ""
    )
    assert kubectl.says("get cm one -o name") == "configmap/one"


def test_from_a_file(kubectl: Kubectl, config_maps: str) -> None:
    manifest = kubectl("get cm one two -o yaml").stdout
    assert kubectl.says("delete -f -", input=manifest).count("deleted") == 2
    assert kubectl.says("get cm -l of=test -o name") == "configmap/three"


def test_a_whole_collection(api: Api, config_maps: str) -> None:
    gone = api.delete(f"{config_maps}?labelSelector=even%3Dfalse")
    assert gone["kind"] == "ConfigMapList"
    assert sorted(item["metadata"]["name"] for item in gone["items"]) == ["one", "three"]
    left = api.get(f"{config_maps}?labelSelector=of%3Dtest")["items"]
    assert [item["metadata"]["name"] for item in left] == ["two"]


def test_background_deletion_takes_the_dependents_along(
    kubectl: Kubectl, api: Api, eventually: Callable[..., Any]
) -> None:
    owner, child = owned(api, kubectl.namespace)
    kubectl("delete cm owner --cascade=background")
    assert not api.exists(owner)
    eventually(lambda: not api.exists(child))


def test_foreground_deletion_takes_them_first(
    kubectl: Kubectl, api: Api, eventually: Callable[..., Any]
) -> None:
    owner, child = owned(api, kubectl.namespace, blocking=True)
    api.merge(child, {"metadata": {"finalizers": [FINALIZER]}})
    kubectl("delete cm owner --cascade=foreground --wait=false")
    assert api.get(owner)["metadata"]["finalizers"] == ["foregroundDeletion"]
    eventually(lambda: "deletionTimestamp" in api.get(child)["metadata"])
    assert api.exists(owner)
    api.merge(child, {"metadata": {"finalizers": None}})
    eventually(lambda: not api.exists(owner))


def test_orphans_live_on(kubectl: Kubectl, api: Api, eventually: Callable[..., Any]) -> None:
    owner, child = owned(api, kubectl.namespace)
    kubectl("delete cm owner --cascade=orphan")
    assert not api.exists(owner)
    eventually(lambda: "ownerReferences" not in api.get(child)["metadata"])


def test_an_object_whose_owner_never_was_is_collected(
    api: Api, namespace: str, eventually: Callable[..., Any]
) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    ghost = {"apiVersion": "v1", "kind": "ConfigMap", "name": "ghost", "uid": "no-such-uid"}
    api.create(path, {"metadata": {"name": "child", "ownerReferences": [ghost]}})
    eventually(lambda: not api.exists(f"{path}/child"))


def test_grace_periods(kubectl: Kubectl, api: Api) -> None:
    pod = running_pod(api, kubectl.namespace)
    kubectl("delete pod web --wait=false")
    leaving = api.get(pod)["metadata"]
    assert leaving["deletionGracePeriodSeconds"] == 30
    assert kubectl.table("get pod web")[0]["STATUS"] == "Terminating"
    kubectl("delete pod web --grace-period=7 --wait=false")
    assert api.get(pod)["metadata"]["deletionGracePeriodSeconds"] == 7
    kubectl("delete pod web --now --wait=false")
    assert api.get(pod)["metadata"]["deletionGracePeriodSeconds"] == 1
    done = kubectl("delete pod web --grace-period=0 --force")
    assert "Immediate deletion does not wait for confirmation" in done.stderr
    assert "force deleted" in done.stdout
    assert not api.exists(pod)


def test_a_pod_that_no_node_has_goes_at_once(kubectl: Kubectl, api: Api) -> None:
    kubectl("run web --image=nginx")
    kubectl("delete pod web --timeout=5s")
    assert not api.exists(f"/api/v1/namespaces/{kubectl.namespace}/pods/web")


def test_waiting_for_a_finalizer(kubectl: Kubectl, api: Api, config_maps: str) -> None:
    path = f"{config_maps}/one"
    api.merge(path, {"metadata": {"finalizers": [FINALIZER]}})
    assert "timed out waiting for the condition" in kubectl.fails("delete cm one --timeout=1s")
    leaving = api.get(path)["metadata"]
    assert leaving["deletionGracePeriodSeconds"] == 0
    with kubectl.start("delete cm one") as lines:
        assert 'configmap "one" deleted' in lines.next()
        assert lines.command.poll() is None
        api.merge(path, {"metadata": {"finalizers": None}})
        assert lines.command.wait(10) == 0
    assert not api.exists(path)


def test_what_is_being_deleted_takes_no_new_finalizer(
    kubectl: Kubectl, api: Api, config_maps: str
) -> None:
    api.merge(f"{config_maps}/one", {"metadata": {"finalizers": [FINALIZER]}})
    kubectl("delete cm one --wait=false")
    more = '{"metadata": {"finalizers": ["example.com/wait", "example.com/more"]}}'
    refused = kubectl.fails("patch", "cm", "one", "--type=merge", "-p", more)
    assert (
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being"
        ' deleted, found new finalizers []string{"example.com/more"}'
    ) in refused
    refused = kubectl.fails("create configmap one")
    assert 'object is being deleted: configmaps "one" already exists' in refused
    api.merge(f"{config_maps}/one", {"metadata": {"finalizers": None}})


def test_a_deleted_namespace_is_emptied_first(
    kubectl: Kubectl, api: Api, eventually: Callable[..., Any]
) -> None:
    name = f"{kubectl.namespace}-x"
    path = f"/api/v1/namespaces/{name}"
    kubectl(f"create namespace {name}")
    kubectl(f"create configmap one -n {name}")
    kubectl(f"create deployment web --image=nginx --replicas=0 -n {name}")
    api.merge(f"{path}/configmaps/one", {"metadata": {"finalizers": [FINALIZER]}})
    kubectl(f"delete namespace {name} --wait=false")
    assert kubectl.table(f"get namespace {name}")[0]["STATUS"] == "Terminating"
    refused = kubectl.fails(f"create configmap two -n {name}")
    assert refused == (
        f'error: failed to create configmap: configmaps "two" is forbidden: unable to create new'
        f" content in namespace {name} because it is being terminated\n"
    )
    eventually(lambda: "deletionTimestamp" in api.get(f"{path}/configmaps/one")["metadata"])
    deployment = f"/apis/apps/v1/namespaces/{name}/deployments/web"
    eventually(lambda: not api.exists(deployment))
    api.merge(f"{path}/configmaps/one", {"metadata": {"finalizers": None}})
    kubectl(f"wait --for=delete namespace/{name} --timeout=30s")


def test_the_first_namespaces_stay(kubectl: Kubectl) -> None:
    for name in ("default", "kube-system", "kube-public"):
        refused = kubectl.fails(f"delete namespace {name}")
        assert refused.splitlines()[-1] == (
            f'Error from server (Forbidden): namespaces "{name}" is forbidden:'
            " this namespace may not be deleted"
        )


def test_preconditions(api: Api, config_maps: str) -> None:
    wrong = {"preconditions": {"uid": "another"}}
    mismatch = r"409: .*the UID in the precondition \(another\) does not match the UID in record"
    with pytest.raises(Exception, match=mismatch):
        api.delete(f"{config_maps}/one", wrong)
    uid = api.get(f"{config_maps}/one")["metadata"]["uid"]
    done = api.delete(f"{config_maps}/one", {"preconditions": {"uid": uid}})
    assert done["status"] == "Success"
    assert done["details"] == {"name": "one", "kind": "configmaps", "uid": uid}


def test_eviction(kubectl: Kubectl, api: Api) -> None:
    pod = running_pod(api, kubectl.namespace)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"}}
    done = api.create(f"{pod}/eviction", eviction)
    assert (done["status"], done["code"]) == ("Success", 201)
    assert "deletionTimestamp" in api.get(pod)["metadata"]
