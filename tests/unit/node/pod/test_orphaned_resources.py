import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kedge.node.pod.dependencies import ClaimFailure, VolumeFailure
from kedge.node.pod.orphaned_resources import OrphanedResources
from kedge.node.pod.runtime_cache import RuntimeCache
from kedge.node.runtime.runtime import ContainerConfig, SandboxConfig
from kedge.testing.local_server import LocalServer
from kedge.testing.node import LocalNode
from kedge.testing.pods import new_pod


class Bench:
    """A node whose agent does not run, and what its pods have left."""

    def __init__(self, node: LocalNode) -> None:
        self.node = node
        self.cache = RuntimeCache(node.runtime, node.clock, lambda uid: None)
        self.orphans = OrphanedResources(node.dependencies(), self.cache)

    async def leave(self, uid: str) -> None:
        """Leave a running container, a cgroup, volumes, devices and files of a pod."""
        runtime, pod = self.node.runtime, new_pod(metadata={"uid": uid})
        sandbox = await runtime.run_sandbox(SandboxConfig(namespace="n", name=uid, uid=uid))
        container = await runtime.create_container(sandbox.id, ContainerConfig(name=uid, image="i"))
        await runtime.start_container(container)
        self.node.cgroups.ensure(pod)
        self.node.volumes.mounted.add(uid)
        self.node.devices.holders.add(uid)
        self.node.claims.prepared.add(uid)
        self.node.files.make(pod)
        await self.cache.relist()

    def left(self) -> list[set[str]]:
        node = self.node
        uids = {box.uid for box in node.runtime._sandboxes.values()}
        return [
            uids,
            node.cgroups.there,
            node.volumes.mounted,
            node.devices.holders,
            node.claims.prepared,
        ]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with LocalServer.running() as server:
        made = LocalNode(server, tmp_path)
        yield Bench(made)
        made.runtime.cancel_timers()


async def test_everything_of_a_pod_is_removed_but_nothing_of_others(bench: Bench) -> None:
    await bench.leave("gone")
    await bench.leave("kept")
    assert bench.orphans.uids() == {"gone", "kept"}
    await bench.orphans.remove_all(["kept"])
    assert bench.left() == [{"kept"}] * 5
    assert bench.node.runtime.running() == ["kept"]
    assert bench.orphans.uids() == {"kept"}


async def test_a_pod_is_found_by_any_of_its_resources(bench: Bench) -> None:
    bench.node.cgroups.there.add("a")
    bench.node.devices.holders.add("b")
    bench.node.files.make(new_pod(metadata={"uid": "c"}))
    assert bench.orphans.uids() == {"a", "b", "c"}
    await bench.orphans.remove_all([])
    assert bench.orphans.uids() == set()


async def test_a_failure_does_not_prevent_removing_the_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    unmount = bench.node.volumes.unmount

    async def fails_for_a(uid: str) -> None:
        if uid == "a":
            raise VolumeFailure("FailedUnmount", "busy")
        await unmount(uid)

    monkeypatch.setattr(bench.node.volumes, "unmount", fails_for_a)
    await bench.leave("a")
    await bench.leave("b")
    with caplog.at_level(logging.WARNING):
        await bench.orphans.remove_all([])
    assert bench.node.volumes.mounted == {"a"}
    assert bench.orphans.uids() == {"a"}, "its files are left, so that it is found again"
    assert "cannot remove orphaned pod uid=a error='busy'" in caplog.text


async def test_a_claim_whose_driver_is_away_is_tried_again(bench: Bench) -> None:
    bench.node.claims.prepared.add("gone")
    bench.node.claims.failures = [ClaimFailure("no driver")]
    await bench.orphans.remove_all([])
    assert bench.orphans.uids() == {"gone"}
    await bench.orphans.remove_all([])
    assert bench.orphans.uids() == set()
