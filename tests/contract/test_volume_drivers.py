"""One suite for every volume driver: the local one, as directories and as images, and CSI."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kedge.machinery.clock import SystemClock
from kedge.node.storage import volume_image
from kedge.node.storage.csi_driver import CsiDriverClient
from kedge.node.storage.local_driver import LocalDriver
from kedge.node.storage.local_store import LocalVolumeStore
from kedge.node.storage.volume_driver import (
    DriverError,
    DriverVolume,
    MountContext,
    VolumeDriver,
)
from kedge.node.volumes import mounts
from kedge.supervisor.kernel import libc
from kedge.testing.csi_driver import DRIVER_NAME, ScriptedCsiDriver

CONTEXT = MountContext()
MIB = 1 << 20


class DriverStage:
    """A driver, and the directories of one node."""

    def __init__(self, driver: VolumeDriver, directory: Path, attributes: dict[str, str]) -> None:
        self.driver = driver
        self.staging = directory / "staged" / "h"
        self.targets = directory / "targets"
        self.attributes = attributes
        self.targets.mkdir()

    def volume(self, size: int = 8 * MIB) -> DriverVolume:
        return DriverVolume(
            self.driver.name, "vol-1", "pv-1", attributes=self.attributes, size=size
        )

    async def staged(self, volume: DriverVolume) -> None:
        """As the agent does it: the directory exists."""
        _make(self.staging)
        await self.driver.stage(volume, self.staging, CONTEXT)

    async def mounted(self, pod: str = "a") -> Path:
        await self.staged(self.volume())
        target = self.targets / pod
        return await self.driver.publish(self.volume(), self.staging, target, CONTEXT)

    async def unmounted(self, pod: str = "a") -> None:
        await self.driver.unpublish("vol-1", self.targets / pod)
        await self.driver.unstage("vol-1", self.staging)


@contextlib.asynccontextmanager
async def csi_stage(directory: Path) -> AsyncIterator[DriverStage]:
    program = ScriptedCsiDriver(directory / "driver")
    await program.start()
    driver = CsiDriverClient(DRIVER_NAME, program.socket, SystemClock())
    driver.open()
    yield DriverStage(driver, directory, {})
    await driver.close()
    await program.stop()


def _make(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)


@pytest.fixture(params=["directory", "image", "csi"])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[DriverStage]:
    making = csi_stage(tmp_path) if request.param == "csi" else local(tmp_path, request.param)
    async with making as found:
        yield found


@pytest.fixture(params=["directory", "image"])
async def local_stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[DriverStage]:
    """For what the controller half of a CSI driver does."""
    async with local(tmp_path, request.param) as found:
        yield found


async def unmarked(volume: DriverVolume) -> None:
    """Keep no mark."""


@contextlib.asynccontextmanager
async def local(directory: Path, kind: str) -> AsyncIterator[DriverStage]:
    is_image = kind == "image"
    if is_image and (why := volume_image.lack()):
        pytest.skip(f"no images of volumes: {why}")
    store = LocalVolumeStore(directory / "volumes")
    driver = LocalDriver(store, may_mount=is_image, shortfall=lambda *_: None, mark=unmarked)
    yield DriverStage(driver, directory, {"enforce": "true" if is_image else "false"})
    for place in mounts.below(directory):
        libc.unmount(place)


async def test_every_call_can_be_repeated(stage: DriverStage) -> None:
    first, second = await stage.mounted(), await stage.mounted()
    assert first == second
    assert mounts.below(stage.staging).count(str(stage.staging)) <= 1
    await stage.unmounted()
    await stage.unmounted()
    assert mounts.below(stage.staging) == []


async def test_content_survives_an_unmount(stage: DriverStage) -> None:
    (await stage.mounted() / "file").write_text("kept")
    await stage.unmounted()
    assert (await stage.mounted("b") / "file").read_text() == "kept"
    await stage.unmounted("b")


async def test_two_pods_share_a_volume(stage: DriverStage) -> None:
    first, second = await stage.mounted("a"), await stage.mounted("b")
    (first / "file").write_text("shared")
    assert (second / "file").read_text() == "shared"
    await stage.driver.unpublish("vol-1", stage.targets / "a")
    assert (second / "file").read_text() == "shared"
    await stage.unmounted("b")


async def test_unmounting_what_was_never_mounted_succeeds(stage: DriverStage) -> None:
    await stage.unmounted()


async def test_publishing_without_staging_is_an_error(stage: DriverStage) -> None:
    with pytest.raises(DriverError):
        await stage.driver.publish(stage.volume(), stage.staging, stage.targets / "a", CONTEXT)


async def test_deleted_data_are_gone_and_a_new_volume_is_empty(local_stage: DriverStage) -> None:
    (await local_stage.mounted() / "file").write_text("old")
    await local_stage.unmounted()
    await local_stage.driver.delete("vol-1")
    await local_stage.driver.delete("vol-1")
    assert os.listdir(await local_stage.mounted()) == []
    await local_stage.unmounted()


async def test_a_volume_grows_and_never_shrinks(stage: DriverStage) -> None:
    path = await stage.mounted()
    larger = stage.volume(16 * MIB)
    try:
        grown = await stage.driver.expand(larger, path, stage.staging, CONTEXT)
    except DriverError:
        # A kernel that grows only what is not mounted: at the next stage.
        await stage.unmounted()
        await stage.staged(larger)
        grown = await stage.driver.expand(larger, path, stage.staging, CONTEXT)
    assert grown == 16 * MIB
    if isinstance(stage.driver, LocalDriver):
        smaller = stage.volume(4 * MIB)
        assert await stage.driver.expand(smaller, path, stage.staging, CONTEXT) == 16 * MIB
    await stage.unmounted()


async def test_usage_has_the_capacity(stage: DriverStage) -> None:
    path = await stage.mounted()
    usage = await stage.driver.usage("vol-1", path, stage.staging)
    assert 4 * MIB < usage.capacity_bytes <= 8 * MIB
    await stage.unmounted()


async def test_a_volume_larger_than_the_disk_is_refused(local_stage: DriverStage) -> None:
    free = await local_stage.driver.capacity(local_stage.attributes)
    assert free > 0
    with pytest.raises(DriverError, match="left for local volumes"):
        await local_stage.staged(local_stage.volume(free * 4))


@pytest.mark.parametrize("handle", ["", "..", "a/b", "../../etc", ".hidden", "A", "x" * 300])
async def test_a_handle_cannot_lead_out_of_the_directory(
    local_stage: DriverStage, handle: str
) -> None:
    volume = DriverVolume(local_stage.driver.name, handle, "pv-1", size=MIB)
    with pytest.raises(DriverError):
        await local_stage.staged(volume)
    with pytest.raises(DriverError):
        await local_stage.driver.delete(handle)


async def test_a_cancelled_call_ends_before_the_next_begins(stage: DriverStage) -> None:
    async with asyncio.TaskGroup() as tasks:
        begun = tasks.create_task(stage.staged(stage.volume()))
        tasks.create_task(asyncio.to_thread(lambda: None))
        begun.cancel()
    path = await stage.mounted()
    (path / "file").write_text("x")
    await stage.unmounted()


async def test_missing_data_are_an_error_and_not_a_new_volume(local_stage: DriverStage) -> None:
    await local_stage.mounted()
    await local_stage.unmounted()
    place = local_stage.staging.parents[1] / "volumes" / "vol-1"
    content = next(each for each in place.iterdir() if each.name != "volume.json")
    content.rename(place / "elsewhere")
    with pytest.raises(DriverError, match=f"{content} does not exist"):
        await local_stage.staged(local_stage.volume())
    (place / "elsewhere").rename(content)
    await local_stage.mounted()
    await local_stage.unmounted()


async def test_a_full_image_refuses_further_bytes(tmp_path: Path) -> None:
    async with local(tmp_path, "image") as stage:
        path = await stage.mounted()
        with pytest.raises(OSError, match="No space left"):
            (path / "big").write_bytes(b"\0" * 10 * MIB)
        await stage.unmounted()
