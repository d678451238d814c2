"""A cluster whose objects are in PostgreSQL: kubectl, restarts, and a server that dies."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from tests.e2e.conftest import Kubectl, OwnCluster, Refused, kubectls
from tests.e2e.test_durability import ENOUGH, PATH, SELECTED, Watcher, Writer, stored
from tests.e2e.test_etcd import is_ready

from kedge.machinery.clock import SystemClock
from kedge.storage.postgresql.connection import PostgresConnection
from kedge.storage.postgresql.store import PostgresStore
from kedge.testing.postgresql_process import USER, PostgresMissing, PostgresProcess
from kedge.testing.postgresql_tls import admit, client_certificate, protected_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

    from kedge.storage.store import StoreEntry

CUTS = 2


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresProcess]:
    try:
        process = PostgresProcess.throwaway()
    except PostgresMissing as missing:
        pytest.skip(str(missing))
    yield process
    process.remove()


@pytest.fixture
def postgresql(server: PostgresProcess) -> PostgresProcess:
    """A PostgreSQL that has no schema of a cluster yet."""
    server.new_address()
    return server


def entry(server: PostgresProcess, key: str) -> StoreEntry:
    """Read a key beside the server."""

    async def read() -> StoreEntry | None:
        connection = PostgresConnection(address=server.address)
        store = await PostgresStore.open(connection, SystemClock())
        try:
            return await store.get(key)
        finally:
            await store.close()

    found = asyncio.run(read())
    assert found is not None
    return found


def test_kubectl_works_on_postgresql_and_objects_outlive_the_cluster(
    postgresql: PostgresProcess, own_cluster: OwnCluster
) -> None:
    up = own_cluster.up("--store", postgresql.url)
    kubectl = Kubectl(next(iter(kubectls().values())), up, "default")
    kubectl("create configmap settings --from-literal=colour=blue")
    kubectl("create deployment web --image=web")
    kubectl("scale deployment web --replicas=0")
    assert kubectl.says("get configmap settings -o jsonpath={.data.colour}") == "blue"
    assert postgresql.url in own_cluster.kedge("status", *own_cluster.which)

    there = entry(postgresql, "/registry/configmaps/default/settings")
    document = json.loads(there.value)
    assert list(document) == ["kind", "apiVersion", "metadata", "data"]
    version = kubectl.says("get configmap settings -o jsonpath={.metadata.resourceVersion}")
    assert version == str(there.revision)

    assert "pg_dump" in own_cluster.fails("backup", "x.kedge", *own_cluster.which)
    own_cluster.kedge("down", *own_cluster.which)
    refused = own_cluster.fails("up", *own_cluster.which, "--nodes=0")
    assert f"Start it with --store {postgresql.url}" in refused
    own_cluster.up("--store", postgresql.url)
    assert kubectl.says("get configmap settings -o jsonpath={.data.colour}") == "blue"
    kubectl("delete configmap settings")
    gone = own_cluster.kedge("down", *own_cluster.which, "--purge", "--yes")
    assert f'DROP SCHEMA "{postgresql.schema}" CASCADE' in gone
    again = ("up", *own_cluster.which, "--nodes=0", "--store", postgresql.url)
    other = own_cluster.fails(*again, code=125)
    assert "those of a cluster with another certificate authority" in other


def test_a_cluster_moves_to_postgresql_and_back(
    postgresql: PostgresProcess, own_cluster: OwnCluster
) -> None:
    up = own_cluster.up()
    kubectl = Kubectl(next(iter(kubectls().values())), up, "default")
    kubectl("create configmap settings --from-literal=colour=blue")
    identity = "get configmap settings -o jsonpath={.metadata.uid}{.metadata.managedFields}"
    before = kubectl.says(identity)
    own_cluster.kedge("down", *own_cluster.which)

    said = own_cluster.kedge("export", postgresql.url, *own_cluster.which)
    assert f"kedge up --name {own_cluster.name} --store {postgresql.url}" in said
    assert "has objects already" in own_cluster.fails("export", postgresql.url, *own_cluster.which)
    own_cluster.up("--store", postgresql.url)
    assert kubectl.says(identity) == before
    kubectl("create configmap second --from-literal=colour=red")
    own_cluster.kedge("down", *own_cluster.which)

    own_cluster.kedge("import", postgresql.url, *own_cluster.which)
    own_cluster.up()
    assert "sqlite" in own_cluster.kedge("status", *own_cluster.which)
    assert kubectl.says(identity) == before
    assert kubectl.says("get configmap second -o jsonpath={.data.colour}") == "red"


def test_nothing_acknowledged_is_lost_when_the_server_or_postgresql_is_killed(
    postgresql: PostgresProcess, own_cluster: OwnCluster, eventually: Callable[..., Any]
) -> None:
    api = own_cluster.up("--store", postgresql.url).api
    acknowledged: dict[str, int] = {}
    seen: list[tuple[str, int]] = []
    start = int(api.get(SELECTED)["metadata"]["resourceVersion"])
    for cut in range(CUTS):
        watcher = Watcher(api, seen[-1][1] if seen else start, seen)
        writers = [Writer(api, f"c{cut}-w{number}") for number in range(3)]
        for thread in (watcher, *writers):
            thread.start()
        eventually(lambda writers=writers: sum(len(w.acknowledged) for w in writers) >= ENOUGH)
        # Writers wait meanwhile: they do not notice that the database was away.
        postgresql.kill()
        postgresql.start()
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
        api = own_cluster.up("--store", postgresql.url).api
        there = stored(api)
        assert {name: there.get(name) for name in acknowledged} == acknowledged
        assert {name: there.get(name) for name, _ in seen} == dict(seen)
    last = Watcher(api, seen[-1][1], seen)
    last.start()
    there = stored(api)
    eventually(lambda: len(seen) >= len(there))
    assert seen == sorted(there.items(), key=lambda item: item[1])


def test_a_postgresql_that_is_down_is_told_in_words(
    postgresql: PostgresProcess, own_cluster: OwnCluster, eventually: Callable[..., Any]
) -> None:
    api = own_cluster.up("--store", postgresql.url).api
    api.create(PATH, {"metadata": {"name": "first"}})
    postgresql.kill()
    with pytest.raises(Refused) as down:
        api.create(PATH, {"metadata": {"name": "second"}})
    assert down.value.code == 503
    assert "pg_isready" in down.value.status["message"]
    assert api.get(f"{PATH}/first")["metadata"]["name"] == "first"
    with pytest.raises(Refused) as unready:
        api.get("/readyz")
    assert f"[-]etcd failed: postgresql at {postgresql.host} does not answer" in str(unready.value)
    postgresql.start()
    eventually(lambda: is_ready(api))
    assert api.exists(f"{PATH}/first")
    assert not api.exists(f"{PATH}/second")


def test_a_cluster_proves_itself_by_a_certificate(
    server: PostgresProcess, own_cluster: OwnCluster, tmp_path: Path
) -> None:
    with protected_server(tmp_path) as postgresql:
        admit(postgresql, "cert clientcert=verify-full")
        own, other = (client_certificate(tmp_path, user) for user in (USER, "jane"))

        def flags(certificate: Path) -> tuple[str, ...]:
            return (
                *("--store", postgresql.url, "--postgresql-cafile", str(tmp_path / "ca.crt")),
                *("--postgresql-certfile", f"{certificate}.crt"),
                *("--postgresql-keyfile", f"{certificate}.key"),
            )

        refused = own_cluster.fails("up", *own_cluster.which, "--nodes=0", *flags(other), code=125)
        assert 'certificate authentication failed for user "kedge"' in refused
        assert "--postgresql-certfile" in refused
        api = own_cluster.up(*flags(own)).api
        api.create(PATH, {"metadata": {"name": "a"}})
        assert "postgresql" in own_cluster.kedge("status", *own_cluster.which)
        used = "SELECT bool_and(ssl AND client_dn = '/CN=kedge') FROM pg_stat_ssl JOIN"
        used += " pg_stat_activity USING (pid) WHERE application_name = 'kedge'"
        assert postgresql.query(used) == "t"
        own_cluster.kedge("down", *own_cluster.which)
