"""WindowFile: the windows of all measured things, in one mapped file that outlives the process.

Everything is written in place, so a process that is killed loses nothing. The file has a header and
then pieces of equal size, each mapped by itself, so that the file can grow while it is in use. A
piece has slots, one for each thing, and columns before the slots.

Why columns: each second one value of every thing is written. In slots these would be on as many
pages as there are things, 70 KB apart: a cache miss and a dirty page each. In columns all values of
one second are next to each other, and the next second touches the neighbouring column.
"""

import contextlib
import logging
import mmap
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from kedge.metrics import detail_windows, series_memory
from kedge.metrics.detail_windows import DetailWindows
from kedge.metrics.scale import CPU, MEMORY
from kedge.metrics.series import Series
from kedge.metrics.windows import MINUTE

if TYPE_CHECKING:
    from kedge.metrics.older_window_file import OlderSlot

log = logging.getLogger(__name__)

_MAGIC: Final = b"KEDGSTAT"
_LAYOUT: Final = 5
_HEADER: Final = 1 << 16
_PIECE: Final = 1 << 21
"""Bytes; both are multiples of any page's size."""
_IDENTITY: Final = struct.Struct("<8sIII36sQ")
"""Magic, layout, size of a slot, size of a piece, boot, last tick."""
_TICK_AT: Final = _IDENTITY.size - 8
_TICK: Final = struct.Struct("<Q")

_KEY: Final = struct.Struct("<I64s64s")
"""Checksum of the rest; uid of the pod; name of the container."""
_STATE: Final = struct.Struct("<qqqqddd")
"""The fields of a TrackState without its last reading, which is in columns."""
_END: Final = 1 << 32
"""Larger times are damage: frames have 32 bits for a time."""
_HEAD: Final = 256
_DETAILS_AT: Final = _HEAD + 2 * series_memory.SIZE
SLOT_BYTES: Final = _DETAILS_AT + detail_windows.SIZE
"""Bytes of one thing, apart from its columns."""
_CELLS: Final = 2 * 4 * MINUTE + 3 * 8
"""Bytes of one thing in all columns."""
SLOTS: Final = _PIECE // (SLOT_BYTES + _CELLS)
"""Slots in each piece."""


class TrackKey(NamedTuple):
    """A container; without a container its pod as a whole; without a uid a part of the node."""

    uid: str
    container: str


class TrackState(NamedTuple):
    """The state of a track apart from its series."""

    second: int = 0
    """The last second with data."""
    counter: int = -1
    """Nanoseconds of processor time at the last reading; -1 if unknown."""
    at: float = 0.0
    """The monotonic time of the last reading."""
    since: int = 0
    """The second of the first reading."""
    run: int = 0
    """The run to which the counter belongs."""
    tick: int = 0
    """The last closed tick."""
    first: int = -1
    """The counter at the begin of the open tick, or of a run that began within it."""
    first_at: float = 0.0
    """The monotonic time of that."""
    aside: float = 0.0
    """Core-seconds of earlier runs in the open tick, and the seconds that they cover."""
    aside_seconds: float = 0.0


class SecondColumns:
    """The last reading of all things in a piece, each at its place, and their values in each second
    of the last minute.

    The order of writes is counter, time, second. A process that is killed after the counter has
    counted too little, never too much; killed before the second, it repeats the second.
    """

    __slots__ = ("at", "counter", "cpu", "memory", "second")

    def __init__(self, piece: memoryview) -> None:
        begin, times = 0, 8 * SLOTS
        self.second: memoryview[int] = piece[begin : begin + times].cast("q")
        self.counter: memoryview[int] = piece[begin + times : begin + 2 * times].cast("q")
        self.at: memoryview[float] = piece[begin + 2 * times : begin + 3 * times].cast("d")
        begin, minute = 3 * times, 4 * MINUTE * SLOTS
        self.cpu: memoryview[float] = piece[begin : begin + minute].cast("f")
        """Cores: those of all things in the first second of a minute, then in the next second."""
        self.memory: memoryview[float] = piece[begin + minute : begin + 2 * minute].cast("f")
        """Bytes, in the same order."""


class TrackSlot:
    """The memory of one thing."""

    __slots__ = ("columns", "key", "memory", "place")

    def __init__(
        self, key: TrackKey, memory: memoryview, columns: SecondColumns, place: int
    ) -> None:
        self.key = key
        self.memory = memory
        self.columns = columns
        self.place = place

    def load(self) -> TrackState:
        columns, place = self.columns, self.place
        last = columns.second[place], columns.counter[place], columns.at[place]
        return TrackState._make((*last, *_STATE.unpack_from(self.memory, _KEY.size)))

    def save(self, state: TrackState) -> None:
        columns, place = self.columns, self.place
        columns.counter[place], columns.at[place] = state.counter, state.at
        columns.second[place] = state.second
        self.save_rest(*state[3:])

    def save_rest(
        self,
        since: int,
        run: int,
        tick: int,
        first: int,
        first_at: float,
        aside: float,
        aside_seconds: float,
    ) -> None:
        """Save the fields that are not in columns."""
        rest = since, run, tick, first, first_at, aside, aside_seconds
        _STATE.pack_into(self.memory, _KEY.size, *rest)

    def series(self, tick: int) -> tuple[Series, Series]:
        """The series of cpu and memory, which end with this tick."""
        cpu, memory = self._parts()
        return Series(*cpu, CPU, tick), Series(*memory, MEMORY, tick)

    def details(self) -> DetailWindows:
        """The windows of its details."""
        return DetailWindows(self.memory[_DETAILS_AT:])

    def clear(self) -> None:
        """Remove all data."""
        detail_windows.clear(self.memory[_DETAILS_AT:].cast("H"))
        for part in self._parts():
            series_memory.clear(*part)
        self.save(TrackState())

    def take_in(self, older: "OlderSlot") -> None:
        """Copy all data of a slot of a file of an earlier layout."""
        for (mine, minute), given, values in zip(
            self._parts(), older.series, older.minutes, strict=True
        ):
            mine[:] = given
            minute[:] = memoryview(values)
        self.memory[_DETAILS_AT:] = older.details
        self.save(TrackState._make(older.state))

    def take_over(self, other: "TrackSlot") -> None:
        """Copy all data of another slot."""
        self.memory[_KEY.size :] = other.memory[_KEY.size :]
        for (_, mine), (_, given) in zip(self._parts(), other._parts(), strict=True):
            mine[:] = given
        self.save(other.load())

    def is_plausible(self) -> bool:
        """Whether all numbers are such as a process can have written."""
        state = self.load()
        times = state.since, state.tick, state.aside, state.aside_seconds
        return all(0 <= each < _END for each in times) and all(
            series_memory.is_plausible(*part) for part in self._parts()
        )

    def _parts(self) -> "Iterator[tuple[memoryview, memoryview[float]]]":
        """The memory and the minute of each series."""
        columns, place = self.columns, self.place
        for number, column in enumerate((columns.cpu, columns.memory)):
            begin = _HEAD + number * series_memory.SIZE
            yield self.memory[begin : begin + series_memory.SIZE], column[place::SLOTS]


Place = tuple[memoryview, SecondColumns, int]
"""Memory, columns and place of a slot."""


class WindowFile:
    """Slots by key. If the disk is full, new slots are in memory only."""

    def __init__(self, path: Path, boot: str) -> None:
        """Continue with the file, if it is valid; `boot` identifies this start of the machine."""
        self._path = path
        self._boot = boot
        self.same_boot = False
        """Whether the file was last written since the same start of the machine."""
        self.tick = 0
        """The last tick in the file."""
        self._slots: dict[TrackKey, TrackSlot] = {}
        self._free: list[Place] = []
        self._file = self._open(path)
        self._header: mmap.mmap | None = None
        self._pieces = 0
        """Pieces in the file."""
        if self._file >= 0:
            self._begin()

    def __iter__(self) -> Iterator[TrackSlot]:
        return iter(list(self._slots.values()))

    def get(self, key: TrackKey) -> TrackSlot | None:
        return self._slots.get(key)

    def claim(self, key: TrackKey) -> TrackSlot:
        """A new slot without data."""
        if not self._free:
            self._grow()
        slot = TrackSlot(key, *self._free.pop())
        slot.clear()
        names = struct.pack("<64s64s", key.uid.encode()[:64], key.container.encode()[:64])
        slot.memory[4 : _KEY.size] = names
        # The checksum last: from here on the slot is in use.
        slot.memory[:4] = struct.pack("<I", zlib.crc32(names))
        self._slots[key] = slot
        return slot

    def release(self, key: TrackKey) -> None:
        slot = self._slots.pop(key, None)
        if slot is not None:
            slot.memory[:4] = bytes(4)
            self._free.append((slot.memory, slot.columns, slot.place))

    def write_tick(self, tick: int) -> None:
        self.tick = tick
        if self._header is not None:
            _TICK.pack_into(self._header, _TICK_AT, tick)

    def close(self) -> None:
        """Close the file. Its mappings stay as long as slots use them."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self, path: Path) -> int:
        # Others may write to the directory: kedge metrics-server runs on volumes of pods.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(path, flags, 0o600)
        except OSError as error:
            log.warning("usage is not kept path=%s error=%r", self._path, str(error))
            return -1

    def _begin(self) -> None:
        size = os.fstat(self._file).st_size
        older = -1
        if size and not self._known(size):
            older = self._older(size)
            self._replace(older)
            size = 0
        try:
            os.posix_fallocate(self._file, 0, _HEADER)
            # Some file systems have no shared mappings.
            self._header = mmap.mmap(self._file, _HEADER)
        except OSError as error:
            log.warning("usage is not kept path=%s error=%r", self._path, str(error))
            self.close()
            if older >= 0:
                # The file stays for the next agent.
                os.close(older)
            return
        if size:
            *_, boot, self.tick = _IDENTITY.unpack_from(self._header)
            self.same_boot = boot.rstrip(b"\0").decode("ascii", "replace") == self._boot
        self._header[: _IDENTITY.size] = _IDENTITY.pack(
            _MAGIC, _LAYOUT, SLOT_BYTES, _PIECE, self._boot.encode(), self.tick
        )
        # A partial piece was never used: the process was killed while the file grew.
        self._pieces = max(0, size - _HEADER) // _PIECE
        for number in range(self._pieces):
            self._read(self._map(number))
        if older >= 0:
            self._take_in(older)

    def _older(self, size: int) -> int:
        """Another descriptor of the file, if it has an earlier layout; -1 if it has none."""
        # Once after an upgrade: every other start of an agent does without the module.
        from kedge.metrics import older_window_file

        head = os.pread(self._file, _IDENTITY.size, 0)
        if size < _HEADER or len(head) < _IDENTITY.size:
            return -1
        *kind, boot, tick = _IDENTITY.unpack(head)
        if tuple(kind) != (_MAGIC, older_window_file.LAYOUT, older_window_file.SLOT_BYTES, _PIECE):
            return -1
        self.tick = tick
        self.same_boot = boot.rstrip(b"\0").decode("ascii", "replace") == self._boot
        return os.dup(self._file)

    def _take_in(self, older: int) -> None:
        """Copy the slots of a file of an earlier layout, and replace it by the copy."""
        from kedge.metrics import older_window_file

        for found in older_window_file.slots(older, _HEADER, _PIECE):
            key = TrackKey(_text(found.uid), _text(found.container))
            if key in self._slots:
                continue
            self.claim(key).take_in(found)
            if not self._slots[key].is_plausible():
                self.release(key)
        os.close(older)
        with contextlib.suppress(OSError):
            os.replace(self._copy, self._path)
        log.info("usage of an earlier release was taken over things=%d", len(self._slots))

    def _known(self, size: int) -> bool:
        head = os.pread(self._file, _IDENTITY.size, 0)
        if size < _HEADER or len(head) < _IDENTITY.size:
            return False
        return _IDENTITY.unpack(head)[:4] == (_MAGIC, _LAYOUT, SLOT_BYTES, _PIECE)

    @property
    def _aside(self) -> Path:
        return self._path.with_name(f"{self._path.name}.aside")

    @property
    def _copy(self) -> Path:
        """A file of an earlier layout is copied to this one, and replaced by it at the end: an
        agent that is killed in between, or a full disk, costs no history."""
        return self._path.with_name(f"{self._path.name}.new")

    def _replace(self, older: int) -> None:
        """Begin another file than the one that cannot be continued; `older` is negative if that is
        lost, and set aside."""
        os.close(self._file)
        with contextlib.suppress(OSError):
            if older < 0:
                log.warning("the file of usage is not ours, or torn; set aside as %s", self._aside)
                os.replace(self._path, self._aside)
            else:
                self._copy.unlink()  # of an agent that was killed
        self._file = self._open(self._path if older < 0 else self._copy)

    def _map(self, number: int) -> memoryview:
        at = _HEADER + number * _PIECE
        try:
            # A write to a hole of a mapped file on a full disk would end this process with SIGBUS.
            os.posix_fallocate(self._file, at, _PIECE)
        except OSError as error:
            log.warning("new usage is not kept path=%s error=%r", self._path, str(error))
            mapped = mmap.mmap(self._file, _PIECE, offset=at, access=mmap.ACCESS_COPY)
        else:
            mapped = mmap.mmap(self._file, _PIECE, offset=at)
            # Without it the kernel reads the pages around each one that is written for the first
            # time, so that the windows of details which are always 0 take memory too.
            mapped.madvise(mmap.MADV_RANDOM)
        return memoryview(mapped)

    def _read(self, piece: memoryview) -> None:
        for place in _places(piece):
            memory = place[0]
            checksum, uid, name = _KEY.unpack_from(memory)
            if not checksum or zlib.crc32(memory[4 : _KEY.size]) != checksum:
                self._free.append(place)
                continue
            slot = TrackSlot(TrackKey(_text(uid), _text(name)), *place)
            if not slot.is_plausible() or slot.key in self._slots:
                log.warning("usage is torn, begun anew pod=%s container=%s", *slot.key)
                memory[:4] = bytes(4)
                self._free.append(place)
                continue
            self._slots[slot.key] = slot

    def _grow(self) -> None:
        self._free += reversed(_places(self._larger()))

    def _larger(self) -> memoryview:
        if self._file >= 0:
            try:
                os.posix_fallocate(self._file, _HEADER + self._pieces * _PIECE, _PIECE)
            except OSError as error:
                log.warning("usage of new pods is not kept error=%r", str(error))
                with contextlib.suppress(OSError):
                    # A partial piece is useless; give its blocks back.
                    os.ftruncate(self._file, _HEADER + self._pieces * _PIECE)
            else:
                self._pieces += 1
                return self._map(self._pieces - 1)
        return memoryview(mmap.mmap(-1, _PIECE))


def _places(piece: memoryview) -> list[Place]:
    columns, begin = SecondColumns(piece), SLOTS * _CELLS
    ends = range(begin, begin + SLOTS * SLOT_BYTES, SLOT_BYTES)
    return [(piece[at : at + SLOT_BYTES], columns, number) for number, at in enumerate(ends)]


def _text(field: bytes) -> str:
    return field.rstrip(b"\0").decode(errors="replace")
