"""Window store: what is remembered of each measured thing, in one mapped file that outlives the
process.

Everything is written where it stays, so that a process which is killed loses nothing. The file has
a header and then pieces of equal size; each is mapped by itself, so that the file can grow while
the rest of it is in use. A piece has slots, one for each thing. What changes each second is not in
them but in columns before them: for each second what all things of the piece used then. So little
memory is touched each second, and it is the same from second to second but for one column.
"""

import contextlib
import logging
import mmap
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from kedge.metrics import series as windows
from kedge.metrics.series import CPU, MEMORY, MINUTE, Series

log = logging.getLogger(__name__)

_MAGIC: Final = b"KEDGSTAT"
_LAYOUT: Final = 2
_HEADER: Final = 1 << 16
_PIECE: Final = 1 << 20
"""Bytes; both are multiples of any page's size."""
_IDENTITY: Final = struct.Struct("<8sIII36sQ")
"""Magic, layout, size of a slot, size of a piece, boot, last tick."""
_TICK_AT: Final = _IDENTITY.size - 8
_TICK: Final = struct.Struct("<Q")

_KEY: Final = struct.Struct("<I64s64s")
"""Checksum of what follows; uid of the pod; name of the container."""
_STATE: Final = struct.Struct("<qqqqddd")
"""The fields of a State but for its last reading, which is in columns."""
_END: Final = 1 << 32
"""A second that no time that is remembered comes near, in a frame's numbers of 32 bits."""
_HEAD: Final = 256
SLOT: Final = _HEAD + 2 * windows.SIZE
"""Bytes of one measured thing, beside its columns."""
_CELLS: Final = 2 * 4 * MINUTE + 3 * 8
"""Bytes of one thing in all columns."""
SLOTS: Final = _PIECE // (SLOT + _CELLS)
"""In each piece."""


class Key(NamedTuple):
    """What is measured: a container, or with no name of a container its pod; without a uid
    something of the node itself."""

    uid: str
    container: str


class State(NamedTuple):
    """What is remembered beside the series."""

    second: int = 0
    """The last of which something is written."""
    counter: int = -1
    """Nanoseconds of processor time when last read; -1 if unknown."""
    at: float = 0.0
    """When that was, by the clock that begins with the machine."""
    since: int = 0
    """The second at which it was first measured."""
    run: int = 0
    """Which start of it the counter is of."""
    tick: int = 0
    """The last that was closed."""
    first: int = -1
    """The counter when the tick that is open began, or when the counter began anew."""
    first_at: float = 0.0
    """When that was."""
    aside: float = 0.0
    """Core-seconds of that tick before, and the seconds in which they were used."""
    aside_seconds: float = 0.0


class Columns:
    """What was last read of all things in a piece, each at its place, and what they used in each
    second of the last minute. Who writes a reading writes the counter before its time: whoever is
    killed in between has counted too little, never too much."""

    __slots__ = ("at", "counter", "cpu", "memory", "second")

    def __init__(self, piece: memoryview) -> None:
        begin, times = 0, 8 * SLOTS
        self.second: memoryview[int] = piece[begin : begin + times].cast("q")
        self.counter: memoryview[int] = piece[begin + times : begin + 2 * times].cast("q")
        self.at: memoryview[float] = piece[begin + 2 * times : begin + 3 * times].cast("d")
        begin, minute = 3 * times, 4 * MINUTE * SLOTS
        self.cpu: memoryview[float] = piece[begin : begin + minute].cast("f")
        """Cores: those of all things in the first second of a minute, then in the next."""
        self.memory: memoryview[float] = piece[begin + minute : begin + 2 * minute].cast("f")
        """Bytes, in the same order."""


class Slot:
    """The memory of one measured thing."""

    __slots__ = ("columns", "key", "memory", "place")

    def __init__(self, key: Key, memory: memoryview, columns: Columns, place: int) -> None:
        self.key = key
        self.memory = memory
        self.columns = columns
        self.place = place

    def load(self) -> State:
        columns, place = self.columns, self.place
        last = columns.second[place], columns.counter[place], columns.at[place]
        return State._make((*last, *_STATE.unpack_from(self.memory, _KEY.size)))

    def save(self, state: State) -> None:
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
        """What of a State is not in columns."""
        rest = since, run, tick, first, first_at, aside, aside_seconds
        _STATE.pack_into(self.memory, _KEY.size, *rest)

    def series(self, tick: int) -> tuple[Series, Series]:
        """Cpu and memory, which were last told of this tick."""
        cpu, memory = self._parts()
        return Series(*cpu, CPU, tick), Series(*memory, MEMORY, tick)

    def clear(self) -> None:
        """Nothing is known of it."""
        for part in self._parts():
            Series.clear(*part)
        self.save(State())

    def take_over(self, other: "Slot") -> None:
        """Know all that another knows."""
        self.memory[_KEY.size :] = other.memory[_KEY.size :]
        for (_, mine), (_, given) in zip(self._parts(), other._parts(), strict=True):
            mine[:] = given
        self.save(other.load())

    def sound(self) -> bool:
        """Whether somebody may have left it like this."""
        state = self.load()
        times = state.since, state.tick, state.aside, state.aside_seconds
        return all(0 <= each < _END for each in times) and all(
            Series.sound(*part) for part in self._parts()
        )

    def _parts(self) -> "Iterator[tuple[memoryview, memoryview[float]]]":
        """For each series its own memory, and its minute."""
        columns, place = self.columns, self.place
        for number, column in enumerate((columns.cpu, columns.memory)):
            begin = _HEAD + number * windows.SIZE
            yield self.memory[begin : begin + windows.SIZE], column[place::SLOTS]


Place = tuple[memoryview, Columns, int]
"""Where a slot may be."""


class Store:
    """Slots by key. Where there is no room on the disk, they are kept in memory only."""

    def __init__(self, path: Path, boot: str) -> None:
        """Go on with the file, if it is one of ours; `boot` is this start of the machine."""
        self._path = path
        self._boot = boot
        self.same_boot = False
        """Whether what was read before is of this start of the machine."""
        self.tick = 0
        """The last tick of which the file knew."""
        self._slots: dict[Key, Slot] = {}
        self._free: list[Place] = []
        self._file = self._open()
        self._header: mmap.mmap | None = None
        self._pieces = 0
        """Those in the file."""
        if self._file >= 0:
            self._begin()

    def __iter__(self) -> Iterator[Slot]:
        return iter(list(self._slots.values()))

    def get(self, key: Key) -> Slot | None:
        return self._slots.get(key)

    def claim(self, key: Key) -> Slot:
        """A slot of which nothing is known."""
        if not self._free:
            self._grow()
        slot = Slot(key, *self._free.pop())
        slot.clear()
        names = struct.pack("<64s64s", key.uid.encode()[:64], key.container.encode()[:64])
        slot.memory[4 : _KEY.size] = names
        # It is in use from here on.
        slot.memory[:4] = struct.pack("<I", zlib.crc32(names))
        self._slots[key] = slot
        return slot

    def release(self, key: Key) -> None:
        slot = self._slots.pop(key, None)
        if slot is not None:
            slot.memory[:4] = bytes(4)
            self._free.append((slot.memory, slot.columns, slot.place))

    def write_tick(self, tick: int) -> None:
        self.tick = tick
        if self._header is not None:
            _TICK.pack_into(self._header, _TICK_AT, tick)

    def close(self) -> None:
        """What was written stays; the mappings go with the last who use them."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            log.warning("usage is not kept path=%s error=%r", self._path, str(error))
            return -1

    def _begin(self) -> None:
        size = os.fstat(self._file).st_size
        if size and not self._known(size):
            self._set_aside()
            size = 0
        try:
            os.posix_fallocate(self._file, 0, _HEADER)
            # Not every file system has files that can be mapped.
            self._header = mmap.mmap(self._file, _HEADER)
        except OSError as error:
            log.warning("usage is not kept path=%s error=%r", self._path, str(error))
            self.close()
            return
        if size:
            *_, boot, self.tick = _IDENTITY.unpack_from(self._header)
            self.same_boot = boot.rstrip(b"\0").decode("ascii", "replace") == self._boot
        self._header[: _IDENTITY.size] = _IDENTITY.pack(
            _MAGIC, _LAYOUT, SLOT, _PIECE, self._boot.encode(), self.tick
        )
        # A piece that is not whole was never used: the agent was killed while it grew.
        self._pieces = max(0, size - _HEADER) // _PIECE
        for number in range(self._pieces):
            self._read(self._map(number))

    def _known(self, size: int) -> bool:
        head = os.pread(self._file, _IDENTITY.size, 0)
        if size < _HEADER or len(head) < _IDENTITY.size:
            return False
        return _IDENTITY.unpack(head)[:4] == (_MAGIC, _LAYOUT, SLOT, _PIECE)

    def _set_aside(self) -> None:
        aside = self._path.with_name(f"{self._path.name}.aside")
        log.warning("the file of usage is not ours, or torn; set aside as %s", aside)
        os.close(self._file)
        with contextlib.suppress(OSError):
            os.replace(self._path, aside)
        self._file = self._open()

    def _map(self, number: int) -> memoryview:
        at = _HEADER + number * _PIECE
        try:
            # Otherwise a disk that is full would end this process when it writes into a hole.
            os.posix_fallocate(self._file, at, _PIECE)
        except OSError as error:
            log.warning("new usage is not kept path=%s error=%r", self._path, str(error))
            mapped = mmap.mmap(self._file, _PIECE, offset=at, access=mmap.ACCESS_COPY)
        else:
            mapped = mmap.mmap(self._file, _PIECE, offset=at)
        return memoryview(mapped)

    def _read(self, piece: memoryview) -> None:
        for place in _places(piece):
            memory = place[0]
            checksum, uid, name = _KEY.unpack_from(memory)
            if not checksum or zlib.crc32(memory[4 : _KEY.size]) != checksum:
                self._free.append(place)
                continue
            slot = Slot(Key(_text(uid), _text(name)), *place)
            if not slot.sound() or slot.key in self._slots:
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
                    # What could be had is of no use, and of use to others.
                    os.ftruncate(self._file, _HEADER + self._pieces * _PIECE)
            else:
                self._pieces += 1
                return self._map(self._pieces - 1)
        return memoryview(mmap.mmap(-1, _PIECE))


def _places(piece: memoryview) -> list[Place]:
    columns, begin = Columns(piece), SLOTS * _CELLS
    ends = range(begin, begin + SLOTS * SLOT, SLOT)
    return [(piece[at : at + SLOT], columns, number) for number, at in enumerate(ends)]


def _text(field: bytes) -> str:
    return field.rstrip(b"\0").decode(errors="replace")
