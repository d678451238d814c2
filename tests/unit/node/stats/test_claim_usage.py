"""How full claims are: by their driver, or by a walk over a directory."""

import asyncio
from pathlib import Path

from kedge.node.stats.claim_usage import ClaimUsage, MeasuredClaim
from kedge.node.stats.disk_usage import DiskUsage
from kedge.node.storage.mount_records import MountRecord
from kedge.node.storage.volume_driver import VolumeUsage
from kedge.testing.clock import FakeClock

IMAGE = VolumeUsage(100, 40, 60, 10, 4, 6)
DIRECTORY = VolumeUsage(capacity_bytes=1 << 20, available_bytes=1 << 20, inodes_free=7)


class FakeMounts:
    """Mounted volumes whose drivers report what a test says."""

    def __init__(self, *records: MountRecord) -> None:
        self.records = list(records)
        self.found: dict[str, VolumeUsage | None] = {}
        self.hung: asyncio.Event | None = None
        self.calls = 0

    async def usage(self, record: MountRecord) -> VolumeUsage | None:
        self.calls += 1
        if self.hung is not None and record.claim == "hung":
            await self.hung.wait()
        return self.found.get(record.claim)


def mounted(claim: str, pod: str = "p", **more: object) -> MountRecord:
    facts = {"driver": "local.kedge.dev", "path": "/v", "claim_uid": f"uid-{claim}", **more}
    return MountRecord(
        uid=pod,
        volume="data",
        name="pv",
        namespace="ns",
        claim=claim,
        **facts,  # type: ignore[arg-type]
    )


async def measured(claims: ClaimUsage, clock: FakeClock, seconds: float = 0) -> None:
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(claims.run())
        await clock.advance(seconds)
        running.cancel()


async def test_a_driver_that_knows_the_usage_is_believed() -> None:
    clock, mounts = FakeClock(), FakeMounts(mounted("c"), mounted("c", "other"))
    mounts.found["c"] = IMAGE
    claims = ClaimUsage(mounts, DiskUsage(clock), clock)
    await measured(claims, clock)
    expected = MeasuredClaim("ns", "c", "uid-c", IMAGE)
    assert claims.all() == [expected]
    assert claims.of_pod("p") == claims.of_pod("other") == [("data", expected)]
    assert claims.of_pod("none") == []
    assert mounts.calls == 1
    assert list(claims.subjects()) == []


async def test_a_directory_is_walked(tmp_path: Path) -> None:
    clock, mounts = FakeClock(), FakeMounts(mounted("c", path=str(tmp_path)))
    (tmp_path / "file").write_bytes(b"x" * 5000)
    mounts.found["c"] = DIRECTORY
    disk = DiskUsage(clock)
    claims = ClaimUsage(mounts, disk, clock)
    await measured(claims, clock)
    assert claims.all()[0].usage.used_bytes == -1
    await disk.walk_some(claims.subjects())
    found = claims.all()[0].usage
    assert found.used_bytes >= 5000
    assert (found.inodes_used, found.inodes) == (1, 8)
    assert found.available_bytes == (1 << 20) - found.used_bytes


async def test_a_device_has_only_a_size() -> None:
    clock, mounts = FakeClock(), FakeMounts(mounted("c", is_block=True))
    mounts.found["c"] = VolumeUsage(capacity_bytes=5)
    claims = ClaimUsage(mounts, DiskUsage(clock), clock)
    await measured(claims, clock)
    assert claims.all()[0].usage == VolumeUsage(capacity_bytes=5)
    assert list(claims.subjects()) == []


async def test_a_driver_that_hangs_delays_only_its_own_volumes() -> None:
    clock, mounts = FakeClock(), FakeMounts(mounted("hung"), mounted("c"))
    mounts.found["c"], mounts.hung = IMAGE, asyncio.Event()
    claims = ClaimUsage(mounts, DiskUsage(clock), clock)
    await measured(claims, clock, 20)
    assert [each.name for each in claims.all()] == ["c"]
    # Once the one that hangs, and in each tick the other.
    assert mounts.calls == 1 + 3


async def test_unmounted_claims_and_inline_volumes_are_left_out() -> None:
    clock = FakeClock()
    mounts = FakeMounts(mounted("c", path=""), mounted("", claim_uid=""), mounted("used"))
    mounts.found["used"] = IMAGE
    claims = ClaimUsage(mounts, DiskUsage(clock), clock)
    await measured(claims, clock)
    assert claims.uids() == {"uid-used"}
    mounts.records = []
    await measured(claims, clock)
    assert claims.all() == []
