"""CSI over a real socket, with a driver that misbehaves."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kedge.machinery.clock import SystemClock
from kedge.node.storage.csi_driver import CsiDriverClient, access_mode
from kedge.node.storage.volume_driver import DriverError, DriverVolume, MountContext
from kedge.testing.csi_driver import DRIVER_NAME, ScriptedCsiDriver

VOLUME = DriverVolume(DRIVER_NAME, "h", "pv", attributes={"k": "v"}, fs_type="ext4", size=1)
CONTEXT = MountContext(secrets={"s": "x"}, pod_attributes={"pod": "p"})
CODES = ("CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND")
MORE_CODES = ("ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION")
LAST_CODES = ("ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE")


class Pair:
    """A driver and the agent's end of the connection."""

    def __init__(self, directory: Path) -> None:
        self.program = ScriptedCsiDriver(directory / "driver")
        self.staging = directory / "staged"
        self.target = directory / "target"
        self.driver = CsiDriverClient(DRIVER_NAME, self.program.socket, SystemClock())

    async def mount(self) -> Path:
        await self.driver.stage(VOLUME, self.staging, CONTEXT)
        return await self.driver.publish(VOLUME, self.staging, self.target, CONTEXT)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    made = Pair(tmp_path)
    await made.program.start()
    made.driver.open()
    yield made
    await made.driver.close()
    await made.program.stop()


@pytest.mark.parametrize("code", [*CODES, *MORE_CODES, *LAST_CODES])
async def test_every_error_code_becomes_an_error_and_can_be_retried(pair: Pair, code: str) -> None:
    pair.program.errors["NodeStageVolume"] = code
    with pytest.raises(DriverError, match="rpc error: code ="):
        await pair.mount()
    pair.program.errors.clear()
    assert await pair.mount() == pair.target


async def test_a_lost_answer_is_repaired_by_the_same_call(pair: Pair) -> None:
    pair.program.lost_answers = {"NodeStageVolume"}
    with pytest.raises(DriverError) as failure:
        await pair.mount()
    assert not failure.value.is_final
    await pair.mount()
    pair.program.lost_answers = {"NodeUnpublishVolume", "NodeUnstageVolume"}
    for _ in range(2):
        try:
            await pair.driver.unpublish("h", pair.target)
        except DriverError:
            continue
    for _ in range(2):
        try:
            await pair.driver.unstage("h", pair.staging)
        except DriverError:
            continue
    assert (pair.program.staged, pair.program.published) == ({}, {})


async def test_a_driver_that_dies_in_a_call_is_called_again(pair: Pair) -> None:
    gate = pair.program.gates["NodeStageVolume"] = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        mounting = tasks.create_task(_outcome(pair))
        while "NodeStageVolume" not in pair.program.calls:
            await SystemClock().sleep(0.005)
        await pair.program.stop()
        assert "rpc error" in await mounting
    gate.set()
    await pair.program.start()
    await _eventually(pair)


async def _outcome(pair: Pair) -> str:
    try:
        await pair.mount()
    except DriverError as error:
        return str(error)
    return ""


async def _eventually(pair: Pair) -> None:
    """The channel reconnects within a second."""
    async with asyncio.timeout(20):
        while await _outcome(pair):
            await SystemClock().sleep(0.05)


async def test_a_driver_that_forgot_its_staging_is_asked_to_stage_again(pair: Pair) -> None:
    await pair.mount()
    pair.program.staged.clear()
    with pytest.raises(DriverError, match="not staged"):
        await pair.driver.publish(VOLUME, pair.staging, pair.target, CONTEXT)
    assert await pair.mount() == pair.target


async def test_a_driver_that_makes_no_target_is_found_out(pair: Pair) -> None:
    pair.program.makes_target = False
    with pytest.raises(DriverError, match="applyFSGroup failed for vol h: lstat"):
        await pair.mount()


async def test_the_pod_is_told_to_publish_only(pair: Pair) -> None:
    await pair.mount()
    stage, publish = pair.program.requests
    assert stage.volume_context == {"k": "v"}
    assert publish.volume_context == {"k": "v", "pod": "p"}
    assert stage.secrets == publish.secrets == {"s": "x"}
    assert stage.volume_capability.mount.fs_type == "ext4"


@pytest.mark.parametrize(
    ("mode", "plain", "distinguished"),
    [
        ("ReadWriteOnce", 1, 7),
        ("ReadWriteOncePod", 1, 6),
        ("ReadOnlyMany", 3, 3),
        ("ReadWriteMany", 5, 5),
    ],
)
def test_access_modes_have_the_numbers_of_csi(mode: str, plain: int, distinguished: int) -> None:
    assert access_mode((mode,), distinguishes=False) == plain
    assert access_mode((mode,), distinguishes=True) == distinguished
