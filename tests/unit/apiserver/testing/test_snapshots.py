"""Snapshots of objects: taken, restored, bounded."""

from typing import Any

from kedge.apiserver import first_objects, objects_file
from kedge.apiserver.testing import snapshots
from kedge.apiserver.testing.snapshots import plan_restore
from kedge.storage.memory import MemoryStore
from kedge.storage.store import StoreEntry
from kedge.testing.local_server import LocalServer

MAPS = "/api/v1/namespaces/default/configmaps"
SNAPSHOTS = "/testing/snapshots"


def entry(key: str, value: bytes, revision: int = 5, created: int = 1) -> StoreEntry:
    return StoreEntry(key, value, revision, created)


def test_only_differences_are_written_and_the_oldest_first() -> None:
    same, changed = entry("/a", b"1"), entry("/b", b"2", created=9)
    gone, new = entry("/c", b"3", created=2), entry("/d", b"4")
    before = {each.key: each for each in (same, changed, gone)}
    now = {"/a": entry("/a", b"1", 7), "/b": entry("/b", b"x", 8), "/d": new}
    plan = plan_restore(before, now)
    assert (plan.deleted, plan.written) == ([new], [gone, changed])


def test_heartbeats_and_events_stay() -> None:
    keys = ("pods/a/b", "minions/n", "leases/kube-node-lease/n", "events/a/b", "health")
    entries = [entry(f"/registry/{key}", b"") for key in keys]
    assert list(snapshots.chosen(entries)) == ["/registry/pods/a/b"]


async def test_objects_come_back_as_changes(server: LocalServer) -> None:
    for name in ("kept", "changed", "deleted"):
        await server.post(MAPS, {"metadata": {"name": name}, "data": {"k": "v"}})
    before = {name: await server.get(f"{MAPS}/{name}") for name in ("kept", "changed", "deleted")}
    taken = await server.call("POST", SNAPSHOTS)
    assert (taken.status, taken.document["id"]) == (201, "snapshot-1")
    await server.merge(f"{MAPS}/changed", {"data": {"k": "w"}})
    await server.delete(f"{MAPS}/deleted")
    new = await server.post(MAPS, {"metadata": {"name": "new"}})
    version = new["metadata"]["resourceVersion"]
    watch = await server.watch(f"{MAPS}?watch=1&resourceVersion={version}")
    result = await server.post(f"{SNAPSHOTS}/snapshot-1/restore", {})
    assert (result["created"], result["updated"], result["deleted"]) == (1, 1, 1)
    assert set(await watch.seen()) == {
        ("DELETED", "new"),
        ("MODIFIED", "changed"),
        ("ADDED", "deleted"),
    }
    assert await server.get(f"{MAPS}/kept") == before["kept"]
    for name in ("changed", "deleted"):
        now = await server.get(f"{MAPS}/{name}")
        old: Any = before[name]
        assert int(now["metadata"].pop("resourceVersion")) > int(
            old["metadata"].pop("resourceVersion")
        )
        assert now == old


async def test_the_content_of_a_snapshot_is_what_another_cluster_begins_with(
    server: LocalServer,
) -> None:
    await server.post(MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}})
    await server.call("POST", SNAPSHOTS)
    await server.delete(f"{MAPS}/a")
    content = await server.call("GET", f"{SNAPSHOTS}/snapshot-1")
    store = MemoryStore(server.clock)
    await first_objects.copy(store, server.clock, objects_file.decode(content.data))
    async with LocalServer.running(store) as other:
        assert (await other.get(f"{MAPS}/a"))["data"] == {"k": "v"}
    assert (await server.call("GET", f"{SNAPSHOTS}/snapshot-2")).status == 404


async def test_custom_kinds_come_back_with_their_objects(server: LocalServer) -> None:
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    spec = {
        "group": "example.com",
        "names": {"plural": "things", "kind": "Thing"},
        "scope": "Cluster",
        "versions": [version],
    }
    await server.post(crds, {"metadata": {"name": "things.example.com"}, "spec": spec})
    things = "/apis/example.com/v1/things"
    thing = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}}
    await server.post(things, thing)
    await server.post(SNAPSHOTS, {})
    await server.delete(f"{things}/a")
    await server.post(f"{SNAPSHOTS}/snapshot-1/restore", {})
    assert (await server.get(f"{things}/a"))["kind"] == "Thing"


async def test_a_snapshot_can_be_restored_again_and_deleted(server: LocalServer) -> None:
    await server.post(SNAPSHOTS, {})
    for _ in range(2):
        await server.post(MAPS, {"metadata": {"name": "a"}})
        assert (await server.post(f"{SNAPSHOTS}/snapshot-1/restore", {}))["deleted"] == 1
    assert len((await server.get(SNAPSHOTS))["items"]) == 1
    await server.delete(f"{SNAPSHOTS}/snapshot-1")
    assert (await server.call("POST", f"{SNAPSHOTS}/snapshot-1/restore")).status == 404
    assert (await server.call("DELETE", f"{SNAPSHOTS}/snapshot-1")).status == 404
    assert (await server.call("GET", f"{SNAPSHOTS}/snapshot-1/restore")).status == 405


async def test_snapshots_are_bounded(server: LocalServer, monkeypatch: Any) -> None:
    monkeypatch.setattr(snapshots, "MOST_SNAPSHOTS", 1)
    await server.post(SNAPSHOTS, {})
    refused = await server.call("POST", SNAPSHOTS)
    assert (refused.status, "delete some" in refused.message) == (403, True)
    monkeypatch.setattr(snapshots, "MOST_SNAPSHOTS", 9)
    monkeypatch.setattr(snapshots, "MOST_BYTES", 10)
    assert (await server.call("POST", SNAPSHOTS)).status == 403
