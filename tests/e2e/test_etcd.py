"""A cluster whose objects are in etcd: kubectl, restarts, and an etcd that dies or is full."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from tests.e2e.conftest import Api, Kubectl, OwnCluster, Refused, kubectls
from tests.e2e.test_durability import ENOUGH, PATH, SELECTED, Watcher, Writer, stored

from kedge.machinery.clock import SystemClock
from kedge.storage.etcd.connection import EtcdConnection
from kedge.storage.etcd.store import EtcdStore
from kedge.testing.etcd_process import EtcdMissing, EtcdProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

    from kedge.storage.store import StoreEntry

CUTS = 3
QUOTA = 8_000_000


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdProcess]:
    """An etcd that flushes to disk."""
    (tmp_path / "etcd").mkdir()
    process = EtcdProcess(tmp_path / "etcd", f"--quota-backend-bytes={QUOTA}")
    try:
        process.start()
    except EtcdMissing as missing:
        pytest.skip(str(missing))
    yield process
    process.remove()


def entry(etcd: EtcdProcess, key: str) -> StoreEntry:
    """Read a key beside the server."""

    async def read() -> StoreEntry | None:
        connection = EtcdConnection(endpoints=(etcd.endpoint,))
        store = await EtcdStore.open(connection, SystemClock())
        try:
            return await store.get(key)
        finally:
            await store.close()

    found = asyncio.run(read())
    assert found is not None
    return found


def test_kubectl_works_on_etcd_and_objects_outlive_the_cluster(
    etcd: EtcdProcess, own_cluster: OwnCluster
) -> None:
    up = own_cluster.up("--store", etcd.url)
    kubectl = Kubectl(next(iter(kubectls().values())), up, "default")
    kubectl("create configmap settings --from-literal=colour=blue")
    kubectl("create deployment web --image=web")
    kubectl("scale deployment web --replicas=0")
    assert kubectl.says("get configmap settings -o jsonpath={.data.colour}") == "blue"
    assert etcd.url in own_cluster.kedge("status", *own_cluster.which)

    there = entry(etcd, "/registry/configmaps/default/settings")
    document = json.loads(there.value)
    assert list(document) == ["kind", "apiVersion", "metadata", "data"]
    assert "resourceVersion" not in document["metadata"]
    version = kubectl.says("get configmap settings -o jsonpath={.metadata.resourceVersion}")
    assert version == str(there.revision)

    assert "etcdctl snapshot save" in own_cluster.fails("backup", "x.kedge", *own_cluster.which)
    own_cluster.kedge("down", *own_cluster.which)
    refused = own_cluster.fails("up", *own_cluster.which, "--nodes=0")
    assert f"Start it with --store {etcd.url}" in refused
    own_cluster.up("--store", etcd.url)
    assert kubectl.says("get configmap settings -o jsonpath={.data.colour}") == "blue"
    kubectl("delete configmap settings")
    assert "still in etcd://" in own_cluster.kedge("down", *own_cluster.which, "--purge", "--yes")


def test_a_cluster_moves_to_etcd_and_back(etcd: EtcdProcess, own_cluster: OwnCluster) -> None:
    up = own_cluster.up()
    kubectl = Kubectl(next(iter(kubectls().values())), up, "default")
    kubectl("create configmap settings --from-literal=colour=blue")
    identity = "get configmap settings -o jsonpath={.metadata.uid}{.metadata.managedFields}"
    before = kubectl.says(identity)
    own_cluster.kedge("down", *own_cluster.which)

    said = own_cluster.kedge("export", etcd.url, *own_cluster.which)
    assert f"kedge up --name {own_cluster.name} --store {etcd.url}" in said
    assert "has objects already" in own_cluster.fails("export", etcd.url, *own_cluster.which)
    own_cluster.up("--store", etcd.url)
    assert kubectl.says(identity) == before
    kubectl("create configmap second --from-literal=colour=red")
    kubectl("label configmap second moved=yes")
    own_cluster.kedge("down", *own_cluster.which)

    own_cluster.kedge("import", etcd.url, *own_cluster.which)
    assert (own_cluster.state / "store.db.old").exists()
    up = own_cluster.up()
    assert "sqlite" in own_cluster.kedge("status", *own_cluster.which)
    assert kubectl.says(identity) == before
    assert kubectl.says("get configmap second -o jsonpath={.data.colour}") == "red"

    own_cluster.kedge("export", "objects.yaml", *own_cluster.which)
    kubectl("delete configmap second")
    kubectl("apply", "-l", "moved=yes", "-f", str(own_cluster.home / "objects.yaml"))
    assert kubectl.says("get configmap second -o jsonpath={.data.colour}") == "red"


def test_pods_run_on_while_their_cluster_moves_to_another_control_plane_and_back(
    etcd: EtcdProcess, own_cluster: OwnCluster
) -> None:
    up = own_cluster.up("--nodes=1")
    kubectl = Kubectl(next(iter(kubectls().values())), up, "default")
    kubectl("run steady --image=host --command -- sleep 1000")
    kubectl("wait --for=condition=Ready pod/steady --timeout=30s")
    container = "get pod steady -o jsonpath={.status.containerStatuses[0].containerID}"
    before = kubectl.says(container)

    said = own_cluster.kedge("down", "--keep-nodes", *own_cluster.which)
    assert "its nodes and their pods continue to run" in said
    own_cluster.kedge("export", etcd.url, *own_cluster.which)
    own_cluster.up("--nodes=1", "--store", etcd.url)
    kubectl("label pod steady moved=yes")
    assert kubectl.says(container) == before
    kubectl("exec steady -- true")

    own_cluster.kedge("down", "--keep-nodes", *own_cluster.which)
    own_cluster.kedge("import", etcd.url, *own_cluster.which)
    own_cluster.up("--nodes=1")
    assert kubectl.says("get pod steady -o jsonpath={.metadata.labels.moved}") == "yes"
    assert kubectl.says(container) == before
    kubectl("exec steady -- true")


def test_objects_of_an_etcd_replace_those_of_a_cluster_only_if_asked(
    etcd: EtcdProcess, own_cluster: OwnCluster
) -> None:
    up = own_cluster.up()
    kubectl = Kubectl(next(iter(kubectls().values())), up, "default")
    kubectl("create configmap first --from-literal=colour=blue")
    own_cluster.kedge("down", *own_cluster.which)
    own_cluster.kedge("export", etcd.url, *own_cluster.which)
    own_cluster.up()
    kubectl("create configmap later --from-literal=colour=red")
    assert "kedge down" in own_cluster.fails("import", etcd.url, "--replace", *own_cluster.which)
    own_cluster.kedge("down", *own_cluster.which)

    assert "--replace" in own_cluster.fails("import", etcd.url, *own_cluster.which)
    own_cluster.kedge("import", etcd.url, "--replace", *own_cluster.which)
    assert (own_cluster.state / "store.db.old").exists()
    own_cluster.up()
    assert kubectl.says("get configmap first -o jsonpath={.data.colour}") == "blue"
    assert "later" not in kubectl.says("get configmaps -o name")


def test_nothing_acknowledged_is_lost_when_the_server_or_etcd_is_killed(
    etcd: EtcdProcess, own_cluster: OwnCluster, eventually: Callable[..., Any]
) -> None:
    api = own_cluster.up("--store", etcd.url).api
    acknowledged: dict[str, int] = {}
    seen: list[tuple[str, int]] = []
    start = int(api.get(SELECTED)["metadata"]["resourceVersion"])
    for cut in range(CUTS):
        watcher = Watcher(api, seen[-1][1] if seen else start, seen)
        writers = [Writer(api, f"c{cut}-w{number}") for number in range(3)]
        for thread in (watcher, *writers):
            thread.start()
        eventually(lambda writers=writers: sum(len(w.acknowledged) for w in writers) >= ENOUGH)
        # Writers wait meanwhile: they do not notice that etcd was away.
        etcd.kill()
        etcd.start()
        before = sum(len(w.acknowledged) for w in writers)
        eventually(
            lambda writers=writers, before=before: (
                sum(len(w.acknowledged) for w in writers) >= before + ENOUGH
            )
        )
        own_cluster.kill()
        for thread in (watcher, *writers):
            thread.join(20)
            assert not thread.is_alive()
        for writer in writers:
            acknowledged |= writer.acknowledged
        api = own_cluster.up("--store", etcd.url).api
        there = stored(api)
        assert {name: there.get(name) for name in acknowledged} == acknowledged
        assert {name: there.get(name) for name, _ in seen} == dict(seen)
    last = Watcher(api, seen[-1][1], seen)
    last.start()
    there = stored(api)
    eventually(lambda: len(seen) >= len(there))
    assert seen == sorted(there.items(), key=lambda item: item[1])


def is_ready(api: Api) -> bool:
    try:
        with api.open(api.request("GET", "/readyz")) as answer:
            return answer.read() == b"ok"
    except Refused:
        return False


def fill(api: Api) -> None:
    for number in range(40):
        api.create(PATH, {"metadata": {"name": f"n{number}"}, "data": {"x": "y" * 900_000}})


def test_an_etcd_that_is_down_or_full_is_told_in_words(
    etcd: EtcdProcess, own_cluster: OwnCluster, eventually: Callable[..., Any]
) -> None:
    api = own_cluster.up("--store", etcd.url).api
    api.create(PATH, {"metadata": {"name": "first"}})
    etcd.kill()
    with pytest.raises(Refused) as down:
        api.create(PATH, {"metadata": {"name": "second"}})
    assert down.value.code == 503
    assert "etcdctl endpoint status" in down.value.status["message"]
    assert api.get(f"{PATH}/first")["metadata"]["name"] == "first"
    with pytest.raises(Refused) as unready:
        api.get("/readyz")
    assert f"[-]etcd failed: etcd at {etcd.endpoint} does not answer" in str(unready.value)
    etcd.start()
    eventually(lambda: is_ready(api))
    assert not api.exists(f"{PATH}/second")

    with pytest.raises(Refused) as full:
        fill(api)
    assert full.value.code == 507
    assert "etcdctl alarm disarm" in full.value.status["message"]
    api.delete(f"{PATH}/first")
    assert not api.exists(f"{PATH}/first")
