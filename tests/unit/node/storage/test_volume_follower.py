"""The node follows the growth and the end of its volumes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.node.storage.test_pod_storage import (
    CLAIMS,
    LOCAL,
    VOLUMES,
    StorageBox,
    bind,
    claim_pod,
)

from kedge.testing.local_server import LocalServer

HERE = {
    "matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["here"]}]
}
AFFINITY = {"required": {"nodeSelectorTerms": [HERE]}}


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[StorageBox]:
    async with LocalServer.running() as server:
        made = StorageBox(server, tmp_path)
        server.start(made.node.run())
        yield made


async def test_a_mounted_volume_grows_with_its_object(box: StorageBox) -> None:
    await bind(box, LOCAL)
    await box.mount(claim_pod())
    larger = {"spec": {"capacity": {"storage": "5Mi"}}}
    await box.server.merge(f"{VOLUMES}/pv", larger)
    await box.until(lambda: "FileSystemResizeSuccessful" in box.events.reasons())
    claim = await box.server.get(f"{CLAIMS}/c")
    assert claim["status"]["capacity"] == {"storage": "5Mi"}
    assert "allocatedResourceStatuses" not in claim["status"]


async def state_of(box: StorageBox) -> str:
    status = (await box.server.get(f"{CLAIMS}/c"))["status"]
    return str(status.get("allocatedResourceStatuses", {}).get("storage", ""))


async def capacity(box: StorageBox, size: str) -> None:
    await box.server.merge(f"{VOLUMES}/pv", {"spec": {"capacity": {"storage": size}}})


async def test_a_growth_beyond_the_disk_is_infeasible_until_it_is_lowered(box: StorageBox) -> None:
    await bind(box, LOCAL)
    await box.mount(claim_pod())
    await capacity(box, "1Ei")
    async with asyncio.timeout(30):
        while await state_of(box) != "NodeResizeInfeasible":
            await asyncio.to_thread(lambda: None)
    conditions = (await box.server.get(f"{CLAIMS}/c"))["status"]["conditions"]
    assert [each["type"] for each in conditions] == ["NodeResizeError"]
    assert "VolumeResizeFailed" in box.events.reasons()
    await capacity(box, "2Mi")
    await box.until(lambda: "FileSystemResizeSuccessful" in box.events.reasons())
    status = (await box.server.get(f"{CLAIMS}/c"))["status"]
    assert status["capacity"] == {"storage": "2Mi"}
    assert "conditions" not in status


async def test_a_volume_that_a_controller_changes_is_left_alone(box: StorageBox) -> None:
    await bind(box, LOCAL)
    await box.mount(claim_pod())
    state = {"allocatedResourceStatuses": {"storage": "ControllerResizeInProgress"}}
    await box.server.merge(f"{CLAIMS}/c/status", {"status": state})
    await capacity(box, "5Mi")
    for _ in range(5):
        await box.server.settle()
    assert await state_of(box) == "ControllerResizeInProgress"
    assert "FileSystemResizeSuccessful" not in box.events.reasons()


@pytest.mark.parametrize(("policy", "is_kept"), [("Delete", False), ("Retain", True)])
async def test_only_the_policy_delete_removes_data(
    box: StorageBox, policy: str, is_kept: bool
) -> None:
    await bind(box, LOCAL, nodeAffinity=AFFINITY, persistentVolumeReclaimPolicy=policy)
    await box.mount(claim_pod())
    data = box.place("u1")
    await box.server.merge(
        f"{VOLUMES}/pv", {"metadata": {"finalizers": ["kedge.dev/local-volume"]}}
    )
    await box.server.call("DELETE", f"{VOLUMES}/pv")
    for _ in range(5):
        await box.server.settle()
    # A pod still uses it.
    assert data.exists()
    assert await is_there(box)
    await box.pods.unmount("u1")
    async with asyncio.timeout(10):
        while await is_there(box):
            await asyncio.to_thread(lambda: None)
    assert data.exists() is is_kept


async def is_there(box: StorageBox) -> bool:
    return bool((await box.server.call("GET", f"{VOLUMES}/pv")).status == 200)
