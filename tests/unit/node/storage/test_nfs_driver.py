"""Exports of NFS servers, with a kernel that answers as it is told."""

import asyncio
import errno
import threading
from pathlib import Path

import pytest

from kedge.node.storage import nfs_driver
from kedge.node.storage.nfs_driver import NfsDriver
from kedge.node.storage.nfs_mount import NFS_DRIVER, NfsMount
from kedge.node.storage.volume_driver import DriverError, DriverVolume, MountContext

CONTEXT = MountContext()
EXPORT = {"server": "127.0.0.1", "path": "/x"}


class Kernel:
    """Fails with the numbers in turn, then mounts."""

    def __init__(self, *failures: int) -> None:
        self.failures = list(failures)
        self.calls: list[NfsMount] = []
        self.gate = threading.Event()
        self.gate.set()

    def mount(self, call: NfsMount, target: Path) -> None:
        assert target.is_dir()
        self.calls.append(call)
        assert self.gate.wait(30)
        if self.failures:
            raise OSError(self.failures.pop(0), "text")


def export(*, is_block: bool = False) -> DriverVolume:
    return DriverVolume(NFS_DRIVER, "h", "pv", attributes=EXPORT, is_block=is_block)


def driver(kernel: Kernel) -> NfsDriver:
    return NfsDriver(may_mount=True, mount=kernel.mount)


async def refusal(made: NfsDriver, target: Path, volume: DriverVolume | None = None) -> str:
    with pytest.raises(DriverError) as failure:
        await made.publish(volume or export(), Path(), target, CONTEXT)
    return str(failure.value)


async def test_an_older_version_is_taken_if_the_server_has_no_newer_one(tmp_path: Path) -> None:
    kernel = Kernel(errno.EINVAL, errno.EPROTONOSUPPORT)
    target = tmp_path / "v"
    assert await driver(kernel).publish(export(), Path(), target, CONTEXT) == target
    assert [each.options for each in kernel.calls] == [
        f"vers={version},addr=127.0.0.1" for version in ("4.2", "4.1", "4.0")
    ]
    assert {each.source for each in kernel.calls} == {"127.0.0.1:/x"}


async def test_a_failure_is_named_and_ends_the_attempts(tmp_path: Path) -> None:
    kernel = Kernel(errno.ENODEV)
    assert await refusal(driver(kernel), tmp_path / "v") == (
        "cannot mount 127.0.0.1:/x: the kernel of the node has no NFS client (module nfs)"
    )
    assert len(kernel.calls) == 1


async def test_a_mode_block_and_a_node_without_rights_are_refused(tmp_path: Path) -> None:
    kernel = Kernel()
    said = await refusal(driver(kernel), tmp_path / "v", export(is_block=True))
    assert said == "cannot mount 127.0.0.1:/x: nfs volumes have no mode Block"
    bound = NfsDriver(may_mount=False, mount=kernel.mount)
    assert "has no right to mount" in await refusal(bound, tmp_path / "v")
    assert kernel.calls == []


async def test_a_call_that_does_not_end_is_not_made_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nfs_driver, "_DEADLINE_SECONDS", 0.05)
    kernel, target = Kernel(), tmp_path / "v"
    kernel.gate.clear()
    made = driver(kernel)
    text = "the mount of 127.0.0.1:/x has not ended after 0.05 s"
    assert await refusal(made, target) == text
    assert await refusal(made, target) == text
    with pytest.raises(DriverError, match="has not ended"):
        await made.unpublish("h", target)
    monkeypatch.setattr(nfs_driver, "_DEADLINE_SECONDS", 30.0)
    kernel.gate.set()
    await made.publish(export(), Path(), target, CONTEXT)
    assert len(kernel.calls) == 1


async def test_nothing_is_left_of_an_export(tmp_path: Path) -> None:
    made, target = driver(Kernel()), tmp_path / "v"
    await made.publish(export(), Path(), target, CONTEXT)
    for _ in range(2):
        await made.unpublish("h", target)
    assert not target.exists()


async def test_a_cancelled_pod_leaves_the_call_to_its_end(tmp_path: Path) -> None:
    kernel, target = Kernel(), tmp_path / "v"
    kernel.gate.clear()
    made = driver(kernel)
    async with asyncio.TaskGroup() as tasks:
        mounting = tasks.create_task(made.publish(export(), Path(), target, CONTEXT))
        while not kernel.calls:
            await asyncio.to_thread(lambda: None)
        mounting.cancel()
    kernel.gate.set()
    await made.unpublish("h", target)
    assert not target.exists()
