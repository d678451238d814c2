"""Volumes, as the processes in real containers see them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kedge.machinery.clock import SystemClock

if TYPE_CHECKING:
    from tests.e2e.conftest import Api, Cluster

Json = dict[str, Any]


class Pods:
    """Runs pods of one namespace, and hears what they say last."""

    def __init__(self, api: Api, namespace: str, eventually: Callable[..., Any]) -> None:
        self._api = api
        self._eventually = eventually
        self._url = f"/api/v1/namespaces/{namespace}"

    def create(self, kind: str, name: str, **parts: Any) -> Json:
        return self._api.create(f"{self._url}/{kind}", {"metadata": {"name": name}, **parts})

    def merge(self, kind: str, name: str, **patch: Any) -> Json:
        return self._api.merge(f"{self._url}/{kind}/{name}", patch)

    def get(self, name: str = "p") -> Json:
        return self._api.get(f"{self._url}/pods/{name}")

    def start(
        self, script: str, *volumes: Json, mounts: list[Json] | None = None, **spec: Any
    ) -> None:
        """Run a script whose output is the pod's last words, with each volume at /v0, /v1 ..."""
        named = [{"name": f"v{i}", **volume} for i, volume in enumerate(volumes)]
        seen = [{"name": f"v{i}", "mountPath": f"/v{i}"} for i in range(len(volumes))]
        container: Json = {
            "name": "c",
            "image": "host",
            "command": ["sh", "-c", f"{{ {script}\n}} > /dev/termination-log 2>&1"],
            "volumeMounts": seen if mounts is None else mounts,
            **spec.pop("container", {}),
        }
        body = {"containers": [container], "volumes": named, "restartPolicy": "Never", **spec}
        body.setdefault("terminationGracePeriodSeconds", 0)
        self.create("pods", "p", spec=body)

    def said(self, code: int = 0) -> str:
        """What the script printed, once it has ended."""

        def ended() -> Any:
            statuses = self.get()["status"].get("containerStatuses", [{}])
            return statuses[0].get("state", {}).get("terminated")

        state: Json = self._eventually(ended)
        assert state["exitCode"] == code, state
        return str(state.get("message", ""))

    def runs(self, script: str, *volumes: Json, **spec: Any) -> str:
        self.start(script, *volumes, **spec)
        return self.said()

    def running(self) -> None:
        self._eventually(lambda: self.get()["status"].get("phase") == "Running")

    def event(self, reason: str) -> str:
        """What the first event of that name says."""

        def found() -> list[str]:
            events = self._api.get(f"{self._url}/events")["items"]
            return [each["message"] for each in events if each["reason"] == reason]

        return str(self._eventually(found)[0])

    def delete(self) -> None:
        self._api.delete(f"{self._url}/pods/p", {"gracePeriodSeconds": 0})
        self._eventually(lambda: not self._api.exists(f"{self._url}/pods/p"))


@pytest.fixture
def pods(api: Api, namespace: str, eventually: Callable[..., Any]) -> Pods:
    # Pods wait for the account that controllers give to every namespace.
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    eventually(lambda: api.exists(account))
    return Pods(api, namespace, eventually)


def config(name: str, **source: Any) -> Json:
    return {"configMap": {"name": name, **source}}


def mount(name: str, path: str, **more: Any) -> Json:
    return {"name": name, "mountPath": path, **more}


MODES = "stat -L -c '%a %g %n'"


def test_files_have_the_modes_they_were_given(pods: Pods) -> None:
    pods.create("configmaps", "m", data={"a": "1", "b": "2"})
    pods.create("secrets", "s", stringData={"password": "hush"})
    items = [{"key": "a", "path": "deep/a"}, {"key": "b", "path": "b", "mode": 0o400}]
    field = {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}
    said = pods.runs(
        f"{MODES} /v0/a /v1/deep/a /v1/b /v2/password /v3/name; cat /v2/password /v3/name",
        config("m"),
        config("m", items=items, defaultMode=0o440),
        {"secret": {"secretName": "s", "defaultMode": 0o400}},
        {"downwardAPI": {"items": [field]}},
    )
    assert said.splitlines() == [
        "644 0 /v0/a",
        "440 0 /v1/deep/a",
        "400 0 /v1/b",
        "400 0 /v2/password",
        "644 0 /v3/name",
        "hushp",
    ]


@pytest.mark.usefixtures("full_level")
def test_a_group_of_the_pod_may_read_files_and_write_to_directories(pods: Pods) -> None:
    pods.create("secrets", "s", stringData={"password": "hush"})
    said = pods.runs(
        f"cat /v0/password; echo; {MODES} /v0/password /v1 /v2; touch /v1/x /v2/x;"
        " stat -c '%u:%g' /v1/x /v2/x; stat -f -c %T /v2; cat /token/token | wc -w;"
        f" {MODES} /token/token",
        {"secret": {"secretName": "s", "defaultMode": 0o400}},
        {"emptyDir": {}},
        {"emptyDir": {"medium": "Memory"}},
        {"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
        mounts=[mount(f"v{i}", f"/v{i}") for i in range(3)] + [mount("v3", "/token")],
        securityContext={"runAsUser": 1001, "runAsGroup": 1002, "fsGroup": 2000},
    )
    assert said.split("\n")[:-1] == [
        "hush",
        "440 2000 /v0/password",
        "2777 2000 /v1",
        "3777 2000 /v2",
        "1001:2000",
        "1001:2000",
        "tmpfs",
        "1",
        "640 2000 /token/token",
    ]


@pytest.mark.usefixtures("mounts")
def test_memory_is_limited_and_shared_by_containers(pods: Pods) -> None:
    filler = {
        "name": "first",
        "image": "host",
        "command": ["sh", "-c", "echo here > /v0/file"],
        "volumeMounts": [mount("v0", "/v0")],
    }
    said = pods.runs(
        "cat /v0/file; head -c 2000000 /dev/zero > /v0/large || stat -c %s /v0/large",
        {"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        initContainers=[filler],
    )
    assert said.splitlines()[0] == "here"
    assert "No space left on device" in said
    assert int(said.splitlines()[-1]) <= 1024 * 1024


@pytest.mark.usefixtures("mounts")
def test_objects_are_shown_read_only(pods: Pods) -> None:
    pods.create("configmaps", "m", data={"a": "1"})
    said = pods.runs("touch /v0/new || echo no; rm /v0/a || echo no", config("m"))
    assert said.count("Read-only file system") == 2


def test_a_change_reaches_the_file_in_a_tenth_of_a_second(pods: Pods) -> None:
    pods.create("configmaps", "m", data={"a": "old", "gone": "x"})
    pods.start(
        "until grep -q new /v0/a; do sleep 0.005; done; date +%s.%N; ls /v0; cat /pinned",
        config("m"),
        mounts=[mount("v0", "/v0"), mount("v0", "/pinned", subPath="a")],
    )
    pods.running()
    pods.merge("configmaps", "m", data={"a": "new", "gone": None, "more": "y"})
    written = SystemClock().now().timestamp()
    seen, *names, pinned = pods.said().splitlines()
    assert names == ["a", "more"]
    assert pinned == "old"
    # Much more than it takes, since tests share the machine.
    assert float(seen) - written < 0.5


def test_what_may_be_missing_comes_and_labels_change(pods: Pods) -> None:
    field = {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}
    pods.start(
        "until test -e /v0/key && grep -q late /v1/labels; do sleep 0.01; done;"
        " cat /v0/key /v1/labels",
        config("later", optional=True),
        {"downwardAPI": {"items": [field]}},
    )
    pods.running()
    pods.create("configmaps", "later", data={"key": "value "})
    pods.merge("pods", "p", metadata={"labels": {"l": "late"}})
    assert pods.said() == 'value l="late"'


def test_a_pod_waits_for_what_is_missing_and_says_so(pods: Pods) -> None:
    pods.start("cat /v0/a", config("missing"))
    assert pods.event("FailedMount") == (
        'MountVolume.SetUp failed for volume "v0" : configmap "missing" not found'
    )
    status = pods.get()["status"]
    assert status["phase"] == "Pending"
    assert status["containerStatuses"][0]["state"]["waiting"]["reason"] == "ContainerCreating"
    pods.create("configmaps", "missing", data={"a": "there"})
    assert pods.said() == "there"


def test_kinds_that_kedge_has_not_are_refused_with_an_event(pods: Pods) -> None:
    pods.start("true", {"iscsi": {"targetPortal": "127.0.0.1", "iqn": "iqn.2026-11.a:b", "lun": 0}})
    assert "kedge has no volumes of the kind iscsi" in pods.event("FailedMount")


def test_an_export_that_cannot_be_mounted_is_named(pods: Pods) -> None:
    # Whatever the kernel can do: no server answers at this port.
    pods.start("true", {"nfs": {"server": "127.0.0.1", "path": "/nothing"}})
    said = pods.event("FailedMount")
    assert said.startswith('MountVolume.SetUp failed for volume "v0" : cannot mount 127.0.0.1:/n')


def test_the_machines_files_are_checked(pods: Pods, tmp_path: Path) -> None:
    pods.start("true", {"hostPath": {"path": str(tmp_path / "no"), "type": "Directory"}})
    assert pods.event("FailedMount").endswith(
        f"hostPath type check failed: {tmp_path}/no is not a directory"
    )


@pytest.mark.usefixtures("mounts")
def test_the_machines_files_are_shared_and_never_deleted(pods: Pods, tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "precious").write_text("gold")
    pods.start(
        "cat /whole/part/precious; touch /part/mine; touch /read-only/x; exec sleep 600",
        {"hostPath": {"path": str(tmp_path), "type": "Directory"}},
        mounts=[
            mount("v0", "/whole"),
            mount("v0", "/part", subPath="part"),
            mount("v0", "/read-only", readOnly=True),
        ],
    )
    pods.running()
    pods.delete()
    assert sorted(os.listdir(tmp_path / "part")) in (["mine", "precious"], ["precious"])
    assert (tmp_path / "part" / "precious").read_text() == "gold"
    assert os.listdir(tmp_path) == ["part"]


def test_parts_of_volumes_are_named_by_variables(pods: Pods) -> None:
    pods.create("configmaps", "m", data={"a": "1"})
    said = pods.runs(
        "cat /file; touch /logs/line; ls /all/by-name; ls -d /all/by-name/p",
        config("m"),
        {"emptyDir": {}},
        mounts=[
            mount("v0", "/file", subPath="a"),
            mount("v1", "/logs", subPathExpr="by-name/$(POD)"),
            mount("v1", "/all"),
        ],
        container={
            "env": [
                {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ]
        },
    )
    assert said == "1p\n/all/by-name/p\n"


def test_a_part_that_leads_out_of_its_volume_is_refused(pods: Pods) -> None:
    linker = {
        "name": "first",
        "image": "host",
        "command": ["ln", "-s", "/etc", "/v0/link"],
        "volumeMounts": [mount("v0", "/v0")],
    }
    pods.start(
        "true",
        {"emptyDir": {}},
        mounts=[mount("v0", "/part", subPath="link")],
        initContainers=[linker],
    )
    text = 'failed to prepare subPath for volumeMount "v0" of container "c"'
    assert pods.event("Failed") == f"Error: {text}"
    waiting = pods.get()["status"]["containerStatuses"][0]["state"]["waiting"]
    assert waiting == {"reason": "CreateContainerConfigError", "message": text}


def test_a_token_proves_who_the_pod_is(pods: Pods, api: Api, namespace: str) -> None:
    said = pods.runs(
        "cat /var/run/secrets/kubernetes.io/serviceaccount/namespace; echo;"
        " cat /var/run/secrets/kubernetes.io/serviceaccount/token"
    )
    name, token = said.splitlines()
    assert name == namespace
    review = {"spec": {"token": token}}
    answer = api.create("/apis/authentication.k8s.io/v1/tokenreviews", review)
    user = answer["status"]["user"]
    assert user["username"] == f"system:serviceaccount:{namespace}:default"
    assert user["extra"]["authentication.kubernetes.io/pod-name"] == ["p"]


def test_nothing_is_mounted_once_the_pod_is_gone(
    pods: Pods, cluster: Cluster, eventually: Callable[..., Any]
) -> None:
    if os.environ.get("KEDGE_E2E_KUBECONFIG"):
        pytest.skip("the node's files are not on this machine")
    pods.create("configmaps", "m", data={"a": "1"})
    pods.start(
        "exec sleep 600",
        {"emptyDir": {"medium": "Memory"}},
        config("m"),
        mounts=[mount("v0", "/v0", subPath="x/y"), mount("v1", "/v1", subPath="a")],
    )
    pods.running()
    uid = pods.get()["metadata"]["uid"]

    def traces() -> list[str]:
        mounted = [line for line in Path("/proc/mounts").read_text().splitlines() if uid in line]
        # Unlike a glob, a walk does not mind what vanishes meanwhile.
        walk = os.walk(Path(cluster.home, "state"))
        return mounted + [
            name for _, *parts in walk for part in parts for name in part if uid in name
        ]

    assert traces()
    pods.delete()
    eventually(lambda: not traces())


def test_a_pod_that_keeps_too_much_is_evicted(pods: Pods, eventually: Callable[..., Any]) -> None:
    pods.start(
        "head -c 3000000 /dev/zero > /v0/large; exec sleep 600",
        {"emptyDir": {"sizeLimit": "1Mi"}},
        restartPolicy="Always",
    )
    eventually(lambda: pods.get()["status"].get("phase") == "Failed", 30)
    status = pods.get()["status"]
    assert status["reason"] == "Evicted"
    assert status["message"] == 'Usage of EmptyDir volume "v0" exceeds the limit "1Mi". '
    assert pods.event("Evicted") == status["message"]
