"""`kedge volume snapshot`, `restore` and `snapshots`."""

import asyncio
from typing import Any

import pytest

from kedge.cli.failure import Failure
from kedge.cli.objects.connection import ApiSession
from kedge.cli.volume import snapshot
from kedge.testing.local_server import LocalServer

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
EVENTS = "/api/v1/namespaces/default/events"
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
async def claim(server: LocalServer) -> None:
    """A bound claim `data`."""
    resources = {"requests": {"storage": "1Gi"}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": resources, "storageClassName": "s"}
    await server.post(CLAIMS, {"metadata": {"name": "data"}, "spec": spec})
    status = {"phase": "Bound", "capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"]}
    await server.merge(f"{CLAIMS}/data/status", {"status": status})


async def told(server: LocalServer, name: str, reason: str, message: str) -> None:
    """Record an event about a claim as soon as it exists."""
    async with asyncio.timeout(30):
        while (await server.call("GET", f"{CLAIMS}/{name}")).status != 200:
            await asyncio.to_thread(lambda: None)
    uid = (await server.get(f"{CLAIMS}/{name}"))["metadata"]["uid"]
    about = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": name, "uid": uid}
    event = {"metadata": {"name": f"{name}.{reason.lower()}"}, "involvedObject": about}
    await server.post(EVENTS, {**event, "reason": reason, "message": message, "type": "Normal"})


async def test_a_snapshot_is_a_claim_with_a_source(
    server: LocalServer, there: ApiSession, capsys: Captured
) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(told(server, "s1", "VolumeCopied", "done"))
        assert await snapshot.take(there, "data", "s1", 60) == 0
    assert "snapshot s1 of claim data created" in capsys.readouterr().out
    made: Any = await server.get(f"{CLAIMS}/s1")
    assert made["spec"]["dataSource"] == {"kind": "PersistentVolumeClaim", "name": "data"}
    assert made["spec"]["resources"] == {"requests": {"storage": "2Gi"}}
    assert await snapshot.show(there) == 0
    heading, row = capsys.readouterr().out.splitlines()
    assert heading.split()[:2] == ["NAME", "CLAIM"]
    assert row.split()[:2] == ["s1", "data"]


async def test_restoring_never_changes_a_claim(there: ApiSession) -> None:
    with pytest.raises(Failure, match="never overwritten"):
        await snapshot.restore(there, "data", "data", 0)


async def test_waiting_says_why_and_ends(
    server: LocalServer, there: ApiSession, capsys: Captured
) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(told(server, "s2", "VolumeNotCopied", "a pod uses it"))
        with pytest.raises(Failure, match=r"not copied within 2 s"):
            await snapshot.take(there, "data", "s2", 2)
    assert "waiting: a pod uses it" in capsys.readouterr().err


async def test_an_unbound_claim_has_no_data(server: LocalServer, there: ApiSession) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    await server.post(CLAIMS, {"metadata": {"name": "new"}, "spec": spec})
    with pytest.raises(Failure, match="is not bound"):
        await snapshot.take(there, "new", "", 0)
