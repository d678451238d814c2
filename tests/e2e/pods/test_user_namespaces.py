"""Pods with `hostUsers: false`: their ids, their volumes, their life.

The first four tests are those of upstream (test/e2e/common/node/security_context.go).
"""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kedge.cli.cluster import process

Json = dict[str, Any]

OWN: Json = {"hostUsers": False}
LENGTH = 65_536

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs the level full")


@pytest.fixture(autouse=True)
def possible(node: Json) -> None:
    if tuple(map(int, os.uname().release.split(".")[:2])) < (6, 3):
        pytest.skip("the kernel is older than 6.3 and has no id-mapped tmpfs")
    assert node["status"]["runtimeHandlers"][0]["features"]["userNamespaces"]


def first_id(uid_map: str) -> int:
    """What id 0 of a pod is on the machine."""
    inside, first, length = map(int, uid_map.split())
    assert (inside, length) == (0, LENGTH)
    return first


def test_two_pods_have_different_ids(pods: Any) -> None:
    one = pods.says("first", "cat /proc/self/uid_map /proc/self/gid_map", **OWN).splitlines()
    two = pods.says("second", "cat /proc/self/uid_map", **OWN)
    assert one[0].split() == one[1].split()
    assert first_id(one[0]) >= LENGTH
    # Though the first has ended, and its ids are free.
    assert abs(first_id(one[0]) - first_id(two)) >= LENGTH


def test_a_pod_that_says_so_has_the_machines_ids(pods: Any) -> None:
    said = pods.says("machine", "cat /proc/self/uid_map", hostUsers=True)
    assert said.split()[1] == Path("/proc/self/uid_map").read_text().split()[1]


@pytest.mark.parametrize(("group", "expected"), [(None, "0"), (200, "200")])
def test_files_of_all_volumes_have_the_owners_that_upstream_gives_them(
    pods: Any, api: Any, namespace: str, group: int | None, expected: str
) -> None:
    for kind in ("configmaps", "secrets"):
        body = {"metadata": {"name": "given"}, "data": {"a": "YQ==", "b": "Yg=="}}
        api.create(f"/api/v1/namespaces/{namespace}/{kind}", body)
    downward = {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}
    secret = {"name": "given"}
    volumes = {
        "cfg": {"configMap": {"name": "given"}},
        "secret": {"secret": {"secretName": "given"}},
        "downward": {"downwardAPI": downward},
        "projected": {"projected": {"sources": [{"downwardAPI": downward}, {"secret": secret}]}},
    }
    context = {} if group is None else {"securityContext": {"fsGroup": group}}
    said = pods.says(
        "volumes",
        "stat -c %g $(find /vol/ -type f); cat $(find /vol/ -type f -name a) | wc -c",
        volumes=[{"name": name, **source} for name, source in volumes.items()],
        container={
            "volumeMounts": [{"name": name, "mountPath": f"/vol/{name}"} for name in volumes]
        },
        **OWN,
        **context,
    )
    assert said.split() == [expected] * 8 + ["6"]


def test_what_is_written_belongs_to_the_containers_ids_on_the_machine(
    pods: Any, tmp_path: Path
) -> None:
    script = (
        "touch /host/root /empty/root /memory/root /part/root &&"
        " stat -c %u:%g /host/root /memory/root /empty/part/root"
    )
    volumes = [
        {"name": "host", "hostPath": {"path": str(tmp_path)}},
        {"name": "empty", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
    ]
    mounts = [{"name": each["name"], "mountPath": f"/{each['name']}"} for each in volumes]
    part = {"name": "empty", "mountPath": "/part", "subPath": "part"}
    container: Json = {"volumeMounts": [*mounts, part]}
    said = pods.says("root", script, volumes=volumes, container=container, **OWN)
    assert said.split() == ["0:0", "0:0", "0:0"]
    assert ((tmp_path / "root").stat().st_uid, (tmp_path / "root").stat().st_gid) == (0, 0)
    tmp_path.chmod(0o777)
    user = {"runAsUser": 1000, "runAsGroup": 2000}
    container = {"volumeMounts": mounts[:1], "securityContext": user}
    pods.says("user", "touch /host/user", volumes=volumes[:1], container=container, **OWN)
    assert ((tmp_path / "user").stat().st_uid, (tmp_path / "user").stat().st_gid) == (1000, 2000)


def test_every_container_probe_and_hook_of_the_pod_is_in_its_namespace(
    pods: Any, any_kubectl: Any
) -> None:
    note = {"exec": {"command": ["sh", "-c", "cat /proc/self/uid_map > /notes/hook"]}}
    probe = {"exec": {"command": ["sh", "-c", "cat /proc/self/uid_map > /notes/probe"]}}
    mounts = {"volumeMounts": [{"name": "notes", "mountPath": "/notes"}]}
    command = ["sh", "-c", "cat /proc/self/uid_map > /notes/init"]
    pods.create(
        "whole",
        "cat /proc/self/uid_map > /notes/main; exec sleep 1000",
        shareProcessNamespace=True,
        volumes=[{"name": "notes", "emptyDir": {}}],
        initContainers=[{"name": "init", "image": "host", "command": command, **mounts}],
        container={
            "lifecycle": {"postStart": note},
            "readinessProbe": {**probe, "periodSeconds": 1},
            **mounts,
        },
        **OWN,
    )
    pods.ready("whole")
    said = any_kubectl.says("exec", "whole", "--", "sh", "-c", "cat /proc/self/uid_map /notes/*")
    lines = [line.split() for line in said.splitlines()]
    assert len(lines) == 5
    assert all(line == lines[0] for line in lines)
    first = first_id(" ".join(lines[0]))
    assert first >= LENGTH
    owners = any_kubectl.says("exec", "whole", "--", "ps", "-e", "-o", "uid=")
    # And the process that reaps, which is the user of that of upstream.
    assert set(owners.split()) == {"0", "65535"}


def test_files_are_copied_in_and_out(pods: Any, any_kubectl: Any, tmp_path: Path) -> None:
    pods.create("copies", **OWN)
    pods.ready("copies")
    (tmp_path / "there").write_text("some text")
    any_kubectl("cp", str(tmp_path / "there"), "copies:/root/here")
    assert any_kubectl.says("exec", "copies", "--", "stat", "-c", "%u", "/root/here").strip() == "0"
    any_kubectl("cp", "copies:/root/here", str(tmp_path / "back"))
    assert (tmp_path / "back").read_text() == "some text"


def test_an_ephemeral_container_joins(pods: Any, api: Any) -> None:
    pods.create("debugged", **OWN)
    pods.ready("debugged")
    script = "cat /proc/1/uid_map /proc/self/uid_map > /dev/termination-log"
    debugger = {
        "name": "debugger",
        "image": "host",
        "command": ["sh", "-c", script],
        "targetContainerName": "main",
    }
    path = f"{pods.path}/debugged/ephemeralcontainers"
    patch = {"spec": {"ephemeralContainers": [debugger]}}
    header = {"Content-Type": "application/strategic-merge-patch+json"}
    api("PATCH", path, patch, **header)

    def ended(pod: Json) -> Any:
        statuses = pod["status"].get("ephemeralContainerStatuses", [{}])
        return statuses[0].get("state", {}).get("terminated")

    pod = pods.when("debugged", ended)
    one, two = ended(pod)["message"].strip().splitlines()
    assert first_id(one) == first_id(two) >= LENGTH


def test_a_deployment_answers_over_the_network(
    api: Any, namespace: str, eventually: Callable[..., Any], pods: Any
) -> None:
    labels = {"app": "own-users"}
    container = {
        "name": "main",
        "image": "host",
        "command": ["python3", "-m", "http.server", "80"],
        "readinessProbe": {"httpGet": {"port": 80}, "periodSeconds": 1},
    }
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1, **OWN},
    }
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    api.create(path, {"metadata": {"name": "web"}, "spec": spec})
    eventually(lambda: api.get(f"{path}/web")["status"].get("readyReplicas") == 2, 30)
    found = api.get(f"{pods.path}?labelSelector=app=own-users")["items"]
    assert len({each["status"]["podIP"] for each in found}) == 2


@pytest.mark.skipif("KEDGE_E2E_KUBECONFIG" in os.environ, reason="kills the node's processes")
def test_ids_outlive_the_agent_and_the_supervisor(
    own_cluster: Any, own_pods: Callable[[Any, str], Any], eventually: Callable[..., Any]
) -> None:
    cluster = own_cluster.up("--nodes=1")
    api, pods = cluster.api, own_pods(cluster.api, "default")
    script = "cat /proc/self/uid_map > /dev/termination-log; exec sleep 1000"
    eventually(lambda: api.exists("/api/v1/namespaces/default/serviceaccounts/default"))
    pods.create("kept", script, **OWN)
    uid = pods.ready("kept")["metadata"]["uid"]
    file = own_cluster.state / "nodes/node-1/pods" / uid / "userns"
    before = file.read_bytes()
    # The container is Ready before its shell has become the program that sleeps.
    (running,) = eventually(lambda: processes_of(file))

    agent = process.running(own_cluster.state / "nodes/node-1", "node")
    assert agent is not None
    os.kill(agent.pid, signal.SIGKILL)
    own_cluster.up("--nodes=1")
    assert file.read_bytes() == before
    assert processes_of(file) == [running]
    said = pods.says("other", "cat /proc/self/uid_map", **OWN)
    assert first_id(said) not in range(running[1], running[1] + LENGTH)

    supervisor = int(Path(f"/proc/{running[0]}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(supervisor, signal.SIGKILL)
    pods.when("kept", lambda pod: pod["status"]["containerStatuses"][0]["restartCount"] == 1)
    pods.ready("kept")
    (again,) = eventually(lambda: processes_of(file))
    assert again[1] == running[1]
    assert file.read_bytes() == before

    claim = Path("/run/kedge/user-namespaces") / str(running[1])
    assert claim.read_text() == str(file)
    api.delete(f"{pods.path}/kept")
    pods.gone("kept")
    eventually(lambda: not claim.exists())


def processes_of(file: Path) -> list[tuple[int, int]]:
    """The programs that sleep with the ids of a pod, and their user ids."""
    first = int(file.read_text().partition('"hostId":')[2].partition(",")[0])
    listed = subprocess.run(
        ["ps", "-e", "-o", "pid=,uid=,args="], capture_output=True, text=True, check=True
    )
    lines = [line.split(None, 2) for line in listed.stdout.splitlines()]
    return [
        (int(pid), int(uid))
        for pid, uid, program in lines
        if int(uid) == first and program == "sleep 1000"
    ]
