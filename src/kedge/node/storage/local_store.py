"""The local volumes of a node: directories or images below one directory of the agent alone.

A volume is made under a temporary name and renamed when it is complete, so a killed agent leaves no
half-made volume. The directory of volumes belongs to the agent; only `data` belongs to containers.
"""

import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from kedge.machinery import atomic
from kedge.node.storage import volume_image
from kedge.node.storage.volume_driver import DriverError
from kedge.supervisor.files import removal

log = logging.getLogger(__name__)

_HANDLE: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_RECORD: Final = "volume.json"
DATA: Final = "data"
IMAGE: Final = "image"
_OPEN: Final = 0o777
"""Mode of the top of a new volume: containers may run as any user."""


class LocalVolumeRecord(msgspec.Struct, frozen=True):
    """The record of a volume: `HANDLE/volume.json`."""

    size: int
    """Bytes that were asked for."""
    is_image: bool = False
    is_block: bool = False


class LocalVolume(NamedTuple):
    """A volume on disk."""

    handle: str
    directory: Path
    record: LocalVolumeRecord

    @property
    def data(self) -> Path:
        return self.directory / DATA

    @property
    def image(self) -> Path:
        return self.directory / IMAGE

    @property
    def content(self) -> Path:
        return self.image if self.record.is_image else self.data

    @property
    def reserved(self) -> int:
        """Bytes of the disk that the volume may still take."""
        if not self.record.is_image:
            return 0
        try:
            status = os.stat(self.image)
        except FileNotFoundError:
            # The volume is being deleted.
            return 0
        return max(status.st_size - status.st_blocks * 512, 0)


class LocalVolumeStore:
    """The volumes of one node."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def find(self, handle: str) -> LocalVolume | None:
        """Return a volume that exists."""
        place = self._place(handle)
        try:
            content = (place / _RECORD).read_bytes()
        except FileNotFoundError:
            if place.exists():
                raise DriverError(f"the record {place / _RECORD} is missing") from None
            return None
        return LocalVolume(handle, place, _decode(content))

    def __iter__(self) -> Iterator[LocalVolume]:
        """Yield the volumes, except those with a damaged record."""
        for handle in self.handles():
            try:
                found = self.find(handle)
            except DriverError as error:
                log.error("volume skipped handle=%s error=%r", handle, str(error))
                continue
            if found is not None:
                yield found

    def handles(self) -> list[str]:
        """Return the handles of all volumes, also of those with a damaged record."""
        try:
            names = os.listdir(self.directory)
        except FileNotFoundError:
            return []
        return sorted(each for each in names if _HANDLE.fullmatch(each))

    def make(
        self,
        handle: str,
        record: LocalVolumeRecord,
        fill: Callable[[Path], None] | None = None,
    ) -> LocalVolume:
        """Create a volume; `fill` writes its content instead of an empty file system."""
        place = self._place(handle)
        self._own_directory()
        unfinished = self.directory / f".{handle}.new"
        if failure := removal.remove_all(unfinished):
            raise DriverError(f"cannot remove {unfinished}: {failure}")
        unfinished.mkdir(mode=0o700)
        if fill is not None:
            fill(unfinished)
        elif record.is_image:
            volume_image.make(unfinished / IMAGE, record.size, formatted=not record.is_block)
        else:
            (unfinished / DATA).mkdir()
            (unfinished / DATA).chmod(_OPEN)
        atomic.write(unfinished / _RECORD, msgspec.json.encode(record))
        unfinished.rename(place)
        # Before anybody records that the volume exists.
        _flush(self.directory)
        return LocalVolume(handle, place, record)

    def resize(self, volume: LocalVolume, size: int) -> LocalVolume:
        """Record another size."""
        record = msgspec.structs.replace(volume.record, size=size)
        atomic.write(volume.directory / _RECORD, msgspec.json.encode(record))
        return volume._replace(record=record)

    def remove(self, handle: str) -> None:
        """Delete a volume. It is renamed first, so that a half-deleted one is not mounted."""
        place = self._place(handle)
        going = self.directory / f".{handle}.gone"
        if place.exists():
            if failure := removal.remove_all(going):
                raise DriverError(f"cannot remove {going}: {failure}")
            place.rename(going)
        if failure := removal.remove_all(going):
            raise DriverError(f"cannot remove {going}: {failure}")

    def free_bytes(self) -> int:
        """Return the bytes for further volumes: images count with their whole size."""
        self._own_directory()
        free = shutil.disk_usage(self.directory).free
        return max(free - sum(volume.reserved for volume in self), 0)

    def _place(self, handle: str) -> Path:
        if not _HANDLE.fullmatch(handle):
            raise DriverError(
                f'"{handle[:253]}" is not the handle of a local volume', is_final=True
            )
        return self.directory / handle

    def _own_directory(self) -> None:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)


def _flush(directory: Path) -> None:
    """Wait until the names in a directory are on disk."""
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _decode(content: bytes) -> LocalVolumeRecord:
    try:
        return msgspec.json.decode(content, type=LocalVolumeRecord)
    except msgspec.DecodeError as error:
        raise DriverError(f"damaged record of a local volume: {error}") from error
