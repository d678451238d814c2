"""Which volumes a node follows."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from kedge.node.storage.volume_watches import VolumeWatches, own_volumes
from kedge.testing.local_server import LocalServer

VOLUMES = "/api/v1/persistentvolumes"


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running() as running:
        yield running


async def make(server: LocalServer, name: str, node: str = "") -> None:
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "x.example.com", "volumeHandle": name},
    }
    labels = {"kedge.dev/node": node} if node else {}
    await server.post(VOLUMES, {"metadata": {"name": name, "labels": labels}, "spec": spec})


async def until(server: LocalServer, condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await server.settle()


async def test_own_volumes_and_those_of_pods_are_followed(server: LocalServer) -> None:
    for name, node in (("own", "here"), ("theirs", "there"), ("mounted", ""), ("other", "")):
        await make(server, name, node)
    seen: set[str] = set()
    watches = VolumeWatches(server.client, "here", server.clock, seen.add)
    watches.hold(["mounted"])
    server.start(watches.run())
    await until(server, lambda: seen == {"own", "mounted"})
    assert watches.get("own") is not None
    assert watches.get("mounted") is not None
    assert watches.get("theirs") is None
    watches.hold(["other"])
    await until(server, lambda: "other" in seen)
    assert watches.get("mounted") is None
    seen.clear()
    for name in ("mounted", "other"):
        await server.merge(f"{VOLUMES}/{name}", {"spec": {"capacity": {"storage": "2Gi"}}})
    await until(server, lambda: bool(seen))
    assert seen == {"other"}


def test_a_long_name_has_a_label_too() -> None:
    assert own_volumes("node-1") == "kedge.dev/node=node-1"
    assert len(own_volumes("n" * 200).partition("=")[2]) == 63
