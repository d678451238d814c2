"""ClaimUsage: how full the claims of this node's pods are, measured outside of the event loop."""

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from kedge.api.storage_v1.local_volumes import LOCAL_DRIVER
from kedge.machinery.clock import Clock
from kedge.metrics.windows import TICK_SECONDS
from kedge.node.stats.disk_usage import DiskKey, DiskSubject, DiskTotals
from kedge.node.storage.mount_records import MountRecord
from kedge.node.storage.volume_driver import VolumeUsage


class MeasuredClaim(NamedTuple):
    """A claim that pods of this node use."""

    namespace: str
    name: str
    uid: str
    usage: VolumeUsage


class MeasuredClaims(Protocol):
    """The newest usage of claims."""

    def uids(self) -> set[str]:
        """All mounted claims, measured or not."""
        ...

    def all(self) -> list[MeasuredClaim]: ...

    def of_pod(self, uid: str) -> list[tuple[str, MeasuredClaim]]:
        """The claims of a pod, with the names of its volumes."""
        ...


class NoClaims:
    """Nothing is mounted. Fulfils MeasuredClaims."""

    def uids(self) -> set[str]:
        return set()

    def all(self) -> list[MeasuredClaim]:
        return []

    def of_pod(self, uid: str) -> list[tuple[str, MeasuredClaim]]:
        return []


class MountedVolumes(Protocol):
    """The mounted volumes of a node (kedge.node.storage.pod_storage)."""

    @property
    def records(self) -> Iterable[MountRecord]: ...

    async def usage(self, record: MountRecord) -> VolumeUsage | None: ...


class ClaimUsage:
    """Asks drivers once in each tick. Its owner calls `run`. Fulfils MeasuredClaims.

    The file system of an image knows its usage. That of a directory is the content of the
    directory, which the walk of DiskUsage adds up slowly.
    """

    def __init__(self, volumes: MountedVolumes, disk: DiskTotals, clock: Clock) -> None:
        self._volumes = volumes
        self._disk = disk
        self._clock = clock
        self._known: dict[str, VolumeUsage] = {}
        """By the uid of the claim, as drivers report it."""
        self._asked: set[str] = set()
        """Claims whose driver has not answered yet."""

    async def run(self) -> None:
        """Measure until cancelled. A driver that hangs delays only its own volumes."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                for uid, record in self._due().items():
                    tasks.create_task(self._measure(uid, record))
                await self._clock.sleep(TICK_SECONDS)

    def subjects(self) -> Iterator[DiskSubject]:
        """Yield the directories whose content is the usage of a claim."""
        for uid, record in self._mounted().items():
            if record.driver == LOCAL_DRIVER and _is_walked(self._known.get(uid), record):
                yield DiskSubject(DiskKey(uid, ""), [Path(record.path)], (), -1)

    def uids(self) -> set[str]:
        return set(self._mounted())

    def all(self) -> list[MeasuredClaim]:
        return [
            found
            for uid, record in self._mounted().items()
            if (found := self._measured(uid, record)) is not None
        ]

    def of_pod(self, uid: str) -> list[tuple[str, MeasuredClaim]]:
        return [
            (record.volume, found)
            for record in self._volumes.records
            if record.uid == uid
            and record.path
            and (found := self._measured(record.claim_uid, record)) is not None
        ]

    def _mounted(self) -> dict[str, MountRecord]:
        """Return one mount of each claim."""
        return {each.claim_uid: each for each in self._volumes.records if _is_claim(each)}

    def _due(self) -> dict[str, MountRecord]:
        mounted = self._mounted()
        for uid in self._known.keys() - mounted.keys():
            del self._known[uid]
        return {uid: record for uid, record in mounted.items() if uid not in self._asked}

    async def _measure(self, uid: str, record: MountRecord) -> None:
        self._asked.add(uid)
        try:
            found = await self._volumes.usage(record)
        finally:
            self._asked.discard(uid)
        if found is not None:
            self._known[uid] = found

    def _measured(self, uid: str, record: MountRecord) -> MeasuredClaim | None:
        found = self._known.get(uid)
        if found is None:
            return None
        if _is_walked(found, record):
            found = self._with_content(found, uid)
        return MeasuredClaim(record.namespace, record.claim, uid, found)

    def _with_content(self, usage: VolumeUsage, uid: str) -> VolumeUsage:
        """Return the usage of a directory on a disk that it shares with others."""
        total = self._disk.of(DiskKey(uid, ""))
        if total is None:
            return usage
        left = max(0, usage.capacity_bytes - total.bytes)
        return usage._replace(
            used_bytes=total.bytes,
            available_bytes=min(usage.available_bytes, left),
            inodes=total.inodes + usage.inodes_free,
            inodes_used=total.inodes,
        )


def _is_claim(record: MountRecord) -> bool:
    return bool(record.claim_uid and record.path)


def _is_walked(usage: VolumeUsage | None, record: MountRecord) -> bool:
    return usage is not None and usage.used_bytes < 0 and not record.is_block
