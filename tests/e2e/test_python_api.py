"""`kedge.Cluster` and `kedge.AsyncCluster`: what docs/testing.md promises."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import kedge

PATIENCE = 60.0
"""Seconds in which anything must happen, on a busy machine too."""

WIDGETS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: integer}}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""
WEB = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: main
        image: host
        command: [sh, -c, "echo hello; exec sleep 1000"]
"""


@pytest.fixture(scope="module")
def c() -> Iterator[kedge.Cluster]:
    with kedge.Cluster(nodes=0, wait=PATIENCE, testing=True) as running:
        yield running


def widget(name: str, size: int) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": {"size": size},
    }


def test_a_custom_resource_is_defined_written_watched_and_awaited(c: kedge.Cluster) -> None:
    c.apply(WIDGETS)
    c.wait("crd/widgets.example.com", "Established", timeout=PATIENCE)
    [made] = c.apply(widget("a", 1))
    assert made["spec"] == {"size": 1}
    seen = c.watch("widgets", timeout=PATIENCE)
    assert next(seen).type == "ADDED"
    c.apply(widget("a", 2))
    changed = next(seen)
    assert (changed.type, changed.object["spec"]["size"]) == ("MODIFIED", 2)
    c.patch("widget/a", {"status": {"phase": "Running"}}, subresource="status")
    assert c.wait("widget/a", "Running", timeout=PATIENCE)["spec"] == {"size": 2}
    c.wait("widget/a", lambda found: found["spec"]["size"] == 2, timeout=PATIENCE)
    c.delete("widget/a", timeout=PATIENCE)
    assert c.list("widgets") == []


def test_a_wait_in_vain_tells_what_was_seen(c: kedge.Cluster) -> None:
    c.apply(WEB)
    with pytest.raises(kedge.WaitTimeout) as failed:
        c.wait("deploy/web", "Available", timeout=1)
    assert "deployment/web in namespace default was not Available within 1 s" in str(failed.value)
    assert "Deployment web:" in str(failed.value)
    assert isinstance(failed.value, TimeoutError)
    with pytest.raises(kedge.WaitTimeout, match="It does not exist"):
        c.wait("deploy/other", "Available", timeout=0.1)


def test_refusals_name_the_reason(c: kedge.Cluster) -> None:
    with pytest.raises(kedge.StatusError) as missing:
        c.get("cm/missing")
    assert (missing.value.code, missing.value.reason) == (404, "NotFound")
    with pytest.raises(kedge.ClusterError, match="doesn't have a resource type"):
        c.get("nothing/a")
    with pytest.raises(kedge.ClusterError, match="kedge up has no setting --color"):
        kedge.Cluster(nodes=0, color="red").start()
    with pytest.raises(kedge.ClusterError, match="nodes"):
        kedge.Cluster(nodes=-1).start()
    with pytest.raises(kedge.ClusterError, match="does not run"):
        kedge.Cluster(nodes=0).get("ns/default")


LIBRARIES = """
import sys
import kedge
c = kedge.ClusterClient(sys.argv[1])
from kubernetes.client import CoreV1Api
print(CoreV1Api(c.kubernetes()).read_namespace("default").metadata.name)
from lightkube.resources.core_v1 import Namespace
print(c.lightkube().get(Namespace, "default").metadata.name)
print(*(each.name for each in c.kr8s().get("namespaces", "default")))
import asyncio, kubernetes_asyncio
async def main():
    async with kedge.AsyncClusterClient(sys.argv[1]) as a, await a.kubernetes_asyncio() as api:
        found = await kubernetes_asyncio.client.CoreV1Api(api).read_namespace("default")
        print(found.metadata.name)
    await operate()
import kopf
registry = kopf.OperatorRegistry()
stopped = asyncio.Event()
@kopf.on.login(registry=registry)
def log_in(**_):
    return c.kopf()
@kopf.on.event("configmaps", registry=registry)
def see(namespace, **_):
    stopped.is_set() or print(namespace)
    stopped.set()
async def operate():
    await kopf.operator(registry=registry, namespace="default", standalone=True, stop_flag=stopped)
asyncio.run(main())
"""


def test_kubectl_uses_the_cluster(c: kedge.Cluster) -> None:
    assert "default" in c.kubectl("get", "namespaces", "-o", "name")
    with pytest.raises(kedge.ClusterError, match='configmaps "missing" not found'):
        c.kubectl("get", "configmap", "missing")


def test_client_libraries_use_the_cluster(c: kedge.Cluster) -> None:
    for library in ("kubernetes", "kubernetes_asyncio", "kr8s", "lightkube", "kopf"):
        pytest.importorskip(library)
    # In a process of its own: some libraries leave connections open, and warn of it.
    command = [sys.executable, "-W", "ignore", "-c", LIBRARIES, str(c.kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.returncode) == (["default"] * 5, 0), done.stderr


def test_a_fork_has_the_same_objects_and_is_a_cluster_of_its_own(c: kedge.Cluster) -> None:
    c.apply(WIDGETS)
    c.wait("crd/widgets.example.com", "Established", timeout=PATIENCE)
    [made] = c.apply(widget("kept", 1))
    before = c.snapshot()
    c.patch("widget/kept", {"spec": {"size": 2}})
    c.clock.advance(hours=1)
    with c.fork() as d, c.fork(before) as e:
        assert d.get("widget/kept")["metadata"]["uid"] == made["metadata"]["uid"]
        assert [each.get("widget/kept")["spec"]["size"] for each in (d, e)] == [2, 1]
        assert abs(d.clock.now() - c.clock.now()) < timedelta(minutes=5)
        d.delete("widget/kept", timeout=PATIENCE)
        d.apply(widget("new", 3))
        with d.new_namespace() as namespace:
            assert namespace.list("widgets") == []
        # It tells strangers where it is itself.
        told = d.get("cm/cluster-info", namespace="kube-public")["data"]["kubeconfig"]
        assert d.url in told
        assert c.url not in told
    assert [each["metadata"]["name"] for each in c.list("widgets")] == ["kept"]
    with pytest.raises(kedge.ClusterError, match="a fork has a directory of its own"):
        c.fork(state="/tmp/somewhere")


def test_the_process_that_is_forked_has_one_thread(c: kedge.Cluster) -> None:
    keeper = parent(c.processes["server"])
    assert len(os.listdir(f"/proc/{parent(keeper)}/task")) == 1


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_an_asynchronous_cluster_has_the_same_methods() -> None:
    async with kedge.AsyncCluster(nodes=0, wait=PATIENCE, max_pods=7) as cluster:
        await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}})
        await cluster.wait("ns/a", "Active", timeout=PATIENCE)
        events = cluster.watch("ns", fields="metadata.name=a", timeout=PATIENCE)
        assert (await anext(events)).type == "ADDED"
        await events.aclose()
        state = cluster.state
        assert state.exists()
        with pytest.raises(kedge.ClusterError, match="not started for tests"):
            await cluster.fork()
    assert not state.exists()


async def test_an_asynchronous_cluster_forks() -> None:
    async with kedge.AsyncCluster(nodes=0, wait=PATIENCE, testing=True) as cluster:
        await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}})
        async with await cluster.fork() as forked:
            assert (await forked.get("ns/a"))["kind"] == "Namespace"


def test_pods_run_and_nothing_is_left(eventually: Callable[..., Any]) -> None:
    with kedge.Cluster(wait=PATIENCE) as cluster:
        cluster.apply(WEB)
        cluster.wait("deploy/web", "Available", timeout=PATIENCE)
        assert cluster.logs("deploy/web") == "hello\n"
        assert cluster.exec("deploy/web", "cat", stdin="text") == (0, "text", "")
        assert cluster.exec("deploy/web", "sh", "-c", "exit 3", check=False).code == 3
        with pytest.raises(kedge.ClusterError, match="exit code 3"):
            cluster.exec("deploy/web", "sh", "-c", "exit 3")
        assert "Started" in [each["reason"] for each in cluster.events()]
        with pytest.raises(kedge.WaitTimeout) as failed:
            cluster.wait("deploy/web", "Available=False", timeout=0.1)
        for seen in ("Available=True", "ScalingReplicaSet", "Log of web-", "hello"):
            assert seen in str(failed.value)
        assert "Log of web-" in cluster.report()
        state = cluster.state
        inside = processes_below(state)
        assert inside
    assert not state.exists()
    # A supervisor that has answered may need a moment to end.
    eventually(lambda: processes_below(state) == [], PATIENCE)


SCRIPT = """
import json, sys, time
import kedge
c = kedge.Cluster(nodes=int(sys.argv[1]), wait=60).start()
print(json.dumps(str(c.state)), flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("nodes", [0, 1])
def test_a_killed_test_process_leaves_nothing(nodes: int, eventually: Callable[..., Any]) -> None:
    command = [sys.executable, "-c", SCRIPT, str(nodes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as test:
        assert test.stdout is not None
        state = Path(json.loads(test.stdout.readline()))
        assert processes_below(state)
        test.send_signal(signal.SIGKILL)
    eventually(lambda: not state.exists(), PATIENCE)
    eventually(lambda: processes_below(state) == [], PATIENCE)


def processes_below(state: Path) -> list[int]:
    """The processes whose working directory or command line is that of the cluster."""
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            place = os.readlink(f"/proc/{pid}/cwd")
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if place.startswith(str(state)) or os.fsencode(str(state)) in words:
            found.append(int(pid))
    return found
