"""Records of mounted volumes: one file for each volume of a pod, below the pod's directory.

A record is written before the first call of a driver and removed after the last one. So an agent
that is killed at any moment leaves nothing mounted that the next one does not know.
"""

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.volume.volume import Volume
from kedge.node.storage.volume_lookup import FoundVolume

log = logging.getLogger(__name__)

DIRECTORY: Final = "claims"


class MountRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A volume of a pod that is, or may be, mounted."""

    uid: str
    """Of the pod."""
    pod: str = ""
    volume: str
    """The name in the pod."""
    name: str
    """The PersistentVolume; the name in the pod for an inline volume."""
    driver: str = ""
    """Empty for a path of the machine."""
    handle: str = ""
    staging: str = ""
    target: str = ""
    path: str = ""
    """Where the volume is; empty before it is published."""
    namespace: str = ""
    claim: str = ""
    """Empty for an inline volume."""
    claim_uid: str = ""
    access_modes: tuple[str, ...] = ()
    is_block: bool = False
    is_read_only: bool = False
    is_inline: bool = False
    is_attached: bool = False
    """Whether it needs an attachment."""

    @property
    def key(self) -> tuple[str, str]:
        """The volume as all pods share it."""
        return (self.driver, self.handle) if self.driver else ("", self.name)


class MountRecords:
    """The records of one node."""

    def __init__(self, pods: Path) -> None:
        self._pods = pods
        self._known = {(each.uid, each.volume): each for each in _read_all(pods)}

    def __iter__(self) -> Iterator[MountRecord]:
        return iter(list(self._known.values()))

    def of_pod(self, uid: str) -> list[MountRecord]:
        return [each for each in self._known.values() if each.uid == uid]

    def find(self, uid: str, volume: str) -> MountRecord | None:
        return self._known.get((uid, volume))

    def others(self, record: MountRecord) -> list[MountRecord]:
        """Return the records of other mounts of the same volume."""
        return [
            each
            for each in self._known.values()
            if each.key == record.key and (each.uid, each.volume) != (record.uid, record.volume)
        ]

    def users(self, driver: str, handle: str) -> list[MountRecord]:
        return [each for each in self._known.values() if each.key == (driver, handle)]

    def write(self, record: MountRecord) -> None:
        """Write a record; without waiting for the disk, because a machine that stops has no mounts
        either. Raises OSError."""
        if self._known.get((record.uid, record.volume)) == record:
            return
        place = self._place(record)
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = place.with_name(f".{place.name}")
        beside.write_bytes(msgspec.json.encode(record))
        os.replace(beside, place)
        self._known[record.uid, record.volume] = record

    def remove(self, record: MountRecord) -> None:
        self._place(record).unlink(missing_ok=True)
        self._known.pop((record.uid, record.volume), None)

    def _place(self, record: MountRecord) -> Path:
        return self._pods / record.uid / DIRECTORY / f"{record.volume}.json"


def _read_all(pods: Path) -> Iterator[MountRecord]:
    for path in pods.glob(f"*/{DIRECTORY}/[!.]*.json"):
        with contextlib.suppress(FileNotFoundError):
            try:
                yield msgspec.json.decode(path.read_bytes(), type=MountRecord)
            except msgspec.DecodeError as error:
                log.error("invalid mount record file=%s error=%r", path, str(error))


def new_record(pod: Pod, volume: Volume, found: FoundVolume) -> MountRecord:
    """Return the record of a volume that is going to be mounted."""
    return MountRecord(
        uid=pod.metadata.uid,
        pod=pod.metadata.name,
        volume=volume.name,
        name=found.name,
        namespace=pod.metadata.namespace,
        claim=found.claim,
        claim_uid=found.claim_uid,
        access_modes=found.spec.access_modes,
        is_block=found.is_block,
        is_read_only=found.is_read_only,
        is_inline=found.is_inline,
    )
