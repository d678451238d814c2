"""Volumes that begin as copies of others."""

import asyncio
import shutil
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
from tests.unit.node.storage.test_volume_follower import AFFINITY

from kedge.api.storage_v1.local_volumes import LOCAL_DATA, VOLUME_NODE
from kedge.testing.local_server import LocalServer


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[StorageBox]:
    async with LocalServer.running() as server:
        made = StorageBox(server, tmp_path)
        server.start(made.node.run())
        yield made


async def copy(box: StorageBox) -> None:
    """Create a volume that is a copy of the one that `bind` makes."""
    amount = {"storage": "1Mi"}
    attributes = {"kedge.dev/copy-of": "v"}
    source = {"driver": "local.kedge.dev", "volumeHandle": "w", "volumeAttributes": attributes}
    owner = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "d", "uid": "u"}
    spec = {"capacity": amount, "accessModes": ["ReadWriteOnce"], "claimRef": owner}
    whole = {**spec, "csi": source, "nodeAffinity": AFFINITY}
    meta = {"name": "copy", "labels": {VOLUME_NODE: "here"}}
    await box.server.post(VOLUMES, {"metadata": meta, "spec": whole})


async def is_marked(box: StorageBox) -> bool:
    found = await box.server.get(f"{VOLUMES}/copy")
    return LOCAL_DATA in found["metadata"].get("annotations", {})


async def until_marked(box: StorageBox) -> None:
    async with asyncio.timeout(30):
        while not await is_marked(box):
            await box.server.settle()
            await asyncio.to_thread(lambda: None)


async def test_a_copy_is_made_when_no_pod_uses_its_source(box: StorageBox) -> None:
    await bind(box, LOCAL, nodeAffinity=AFFINITY)
    await box.mount(claim_pod())
    (box.place("u1") / "file").write_text("kept")
    await copy(box)
    await box.until(lambda: "VolumeNotCopied" in box.events.reasons())
    assert not (box.directory / "volumes" / "w").exists()
    await box.pods.unmount("u1")
    await until_marked(box)
    assert (box.directory / "volumes" / "w" / "data" / "file").read_text() == "kept"
    assert "VolumeCopied" in box.events.reasons()
    # The copy is a volume of its own.
    await box.mount(claim_pod("u2"))
    (box.place("u2") / "file").write_text("changed")
    assert (box.directory / "volumes" / "w" / "data" / "file").read_text() == "kept"


async def test_a_half_made_copy_is_made_again(box: StorageBox) -> None:
    await bind(box, LOCAL, nodeAffinity=AFFINITY)
    await box.mount(claim_pod())
    (box.place("u1") / "file").write_text("whole")
    await box.pods.unmount("u1")
    half = box.directory / "volumes" / ".w.new" / "data"
    half.mkdir(parents=True)
    (half / "other").touch()
    await copy(box)
    await until_marked(box)
    made = box.directory / "volumes" / "w" / "data"
    assert [each.name for each in made.iterdir()] == ["file"]


async def test_missing_data_of_the_source_are_reported(box: StorageBox) -> None:
    await bind(box, LOCAL, nodeAffinity=AFFINITY)
    await box.mount(claim_pod())
    await box.pods.unmount("u1")
    shutil.rmtree(box.directory / "volumes" / "v")
    await copy(box)
    await box.until(lambda: "VolumeNotCopied" in box.events.reasons())
    assert not await is_marked(box)


async def test_a_pod_does_not_get_a_copy_before_it_is_made(box: StorageBox) -> None:
    attributes = {"kedge.dev/copy-of": "none"}
    source = {"driver": "local.kedge.dev", "volumeHandle": "w", "volumeAttributes": attributes}
    await bind(box, {"csi": source}, nodeAffinity=AFFINITY)
    assert "is being copied" in await box.refusal(claim_pod())
    assert (await box.server.get(f"{CLAIMS}/c"))["status"]["phase"] == "Bound"
