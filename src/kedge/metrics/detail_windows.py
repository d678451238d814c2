"""DetailWindows: the rolling windows of all details of one thing, with less memory than a Series.

A detail has one value for each tick, not for each second. Ticks of the last hour are kept, and for
a day the mean and the maximum of every five minutes. So `10s`, `1m` and `1h` are exact to the
codes, and of a day the mean and the maximum; its 95th is that of means of five minutes. A day may
lack up to five minutes. That is 1.9 KB for each detail, and a detail that is always 0 is never
written at all, nor read. One more series has the ticks in which nothing was measured, such as those
in which the agent did not run; a detail that begins to be more than 0 takes its ticks over.

A row of a frame has, of each detail that is not 0, nine codes instead of twelve numbers: the three
statistics of one tick are equal, and the 95th of six ticks is their maximum.
"""

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kedge.metrics.detail_scale import ABSENT, NOTHING, code, value
from kedge.metrics.series_memory import BLOCK_TICKS, DAY_TICKS, HOUR_TICKS, UNKNOWN
from kedge.metrics.statistics import rank
from kedge.metrics.windows import DETAILS, MINUTE, TICK_SECONDS

_BLOCKS: Final = DAY_TICKS // BLOCK_TICKS
_MINUTE_TICKS: Final = MINUTE // TICK_SECONDS
_WRITTEN_AT: Final = 2
_SINCE_AT: Final = 4
_HEAD: Final = _SINCE_AT + 2 * (len(DETAILS) + 1)
"""Shorts before the first series: the last tick, a bit for each series that was written, and the
first tick of each series (0 for that of gaps). They are together, so that the pages of series
without any value but 0 are not even read: those of a file take memory as soon as they are."""
# Shorts of a series, in this order: the ticks of an hour, then for each block of a day its mean and
# its maximum.
_MEANS: Final = HOUR_TICKS
_MAXIMA: Final = _MEANS + _BLOCKS
_SERIES: Final = _MAXIMA + _BLOCKS
_OFTEN: Final = (
    "cpu-pressure-some",
    "page-faults",
    "network-receive",
    "network-transmit",
    "ephemeral-storage",
    "ephemeral-inodes",
    "disk-write",
    "disk-writes",
)
"""Details that are rarely 0 for an hour. Their series are side by side, on the same pages."""
_ORDER: Final = sorted(DETAILS, key=lambda each: each.name not in _OFTEN)
_GAPS: Final = len(DETAILS)
"""The number of the series of ticks in which nothing was measured: they are ABSENT, others 0."""
_BEGINS: Final = (
    *(_HEAD + _ORDER.index(each) * _SERIES for each in DETAILS),
    _HEAD + _GAPS * _SERIES,
)
"""Where the series of each detail begins, and that of gaps."""
SIZE: Final = 2 * (_HEAD + len(_BEGINS) * _SERIES)
"""Bytes of the memory."""

CODES: Final = 9
"""Codes of a detail in a row: 10s; mean and maximum of 1m; mean, maximum and 95th of 1h and 1d."""
SPREAD: Final = (0, 0, 0, 1, 2, 2, 3, 4, 5, 6, 7, 8)
"""Which of the codes is the number of each window and statistic."""
MASKS: Final = struct.Struct("<2I")
"""The begin of a row: a bit for each detail that is known, and for each that is not 0."""
NO_ROW: Final = MASKS.pack(0, 0)
"""A row without any detail."""
NONE_KNOWN: Final = (UNKNOWN,) * len(DETAILS)
"""Values of a tick in which nothing is known."""
_ZEROED: Final = memoryview(bytes(2 * _SERIES)).cast("H")


class DetailWindows:
    """All details of one thing; the memory belongs to the caller."""

    __slots__ = ("_active", "_days", "_hours", "_known", "_shorts")

    def __init__(self, memory: memoryview) -> None:
        """Continue with the data in the memory."""
        self._shorts: memoryview[int] = memory.cast("H")
        self._active = self._shorts[_WRITTEN_AT] | self._shorts[_WRITTEN_AT + 1] << 16
        """A bit for each series that may have another code than NOTHING."""
        self._known = sum(bool(self._since(at)) << at for at in range(len(DETAILS)))
        """A bit for each detail that was known in some tick."""
        self._hours: dict[int, float] = {}
        """The sum of the ticks of an hour, for details that were read."""
        self._days: dict[int, _ClosedBlocks] = {}
        for number, begin in enumerate(_BEGINS):
            if self._is_active(number) and self._shorts[begin : begin + _SERIES] == _ZEROED:
                self._active ^= 1 << number
        self._write_active()

    @property
    def tick(self) -> int:
        """The last tick; 0 if there is none."""
        return self._shorts[0] | self._shorts[1] << 16

    def put(self, tick: int, values: Sequence[float]) -> None:
        """End a tick with the value of each detail; a negative value is unknown. Ticks that were
        left out before it have no data."""
        last = self.tick
        if tick <= last or (not last and max(values) < 0):
            return
        if last and tick // BLOCK_TICKS != last // BLOCK_TICKS:
            self._close_blocks(last // BLOCK_TICKS, tick // BLOCK_TICKS)
        late = bool(last) and tick != last + 1
        slot = tick % HOUR_TICKS
        if late:
            self._skip(_GAPS, last + 1, tick)
        if self._is_active(_GAPS):
            self._write(_GAPS, slot, NOTHING)
        active, known = self._active, self._known
        for number, each in enumerate(values):
            if not known >> number & 1:
                if each < 0:
                    continue
                self._begin(number, tick)
            elif late and active >> number & 1:
                self._skip(number, last + 1, tick)
            if each or active >> number & 1:
                coded = code(each)
                if coded or active >> number & 1:
                    self._write(number, slot, coded)
        self._shorts[0], self._shorts[1] = tick & 0xFFFF, tick >> 16

    def row(self) -> bytes:
        """The masks, and the codes of each detail that is known and not 0."""
        known = filled = 0
        parts = []
        tick, active = self.tick, self._active
        if not tick:
            return NO_ROW
        for number in range(len(DETAILS)):
            if not self._known >> number & 1:
                continue
            if not active >> number & 1:
                known |= 1 << number
                continue
            codes = self._codes(number, tick)
            if min(codes) != ABSENT:
                known |= 1 << number
                if any(codes):
                    filled |= 1 << number
                    parts.append(_CODES.pack(*codes))
        return MASKS.pack(known, filled) + b"".join(parts)

    def move(self, tick: int) -> None:
        """Forget everything: the clock was set back behind this tick."""
        if self.tick > tick:
            clear(self._shorts)
            self._active = self._known = 0
            self._hours, self._days = {}, {}

    def _since(self, number: int) -> int:
        """The first tick of a detail; 0 if it was never known."""
        at = _SINCE_AT + 2 * number
        return self._shorts[at] | self._shorts[at + 1] << 16

    def _begin(self, number: int, tick: int) -> None:
        at = _SINCE_AT + 2 * number
        self._shorts[at], self._shorts[at + 1] = tick & 0xFFFF, tick >> 16
        self._known |= 1 << number

    def _is_active(self, number: int) -> bool:
        return bool(self._active >> number & 1)

    def _activate(self, number: int) -> None:
        """Begin to write a series, which was 0 whenever something was measured."""
        self._active |= 1 << number
        # Before the series: what is not marked is not cleared either.
        self._write_active()
        gaps, begin = _BEGINS[_GAPS], _BEGINS[number]
        has_gaps = number != _GAPS and self._is_active(_GAPS)
        filled = self._shorts[gaps : gaps + _SERIES] if has_gaps else _ZEROED
        self._shorts[begin : begin + _SERIES] = filled

    def _write_active(self) -> None:
        low, high = self._active & 0xFFFF, self._active >> 16
        if (self._shorts[_WRITTEN_AT], self._shorts[_WRITTEN_AT + 1]) != (low, high):
            self._shorts[_WRITTEN_AT], self._shorts[_WRITTEN_AT + 1] = low, high

    def _write(self, number: int, slot: int, coded: int) -> None:
        if not self._is_active(number):
            self._activate(number)
        at = _BEGINS[number] + slot
        old = self._shorts[at]
        if old == coded:
            return
        self._shorts[at] = coded
        if number in self._hours:
            self._hours[number] += _amount(coded) - _amount(old)

    def _skip(self, number: int, first: int, end: int) -> None:
        """Record that the ticks before `end` have no data."""
        for tick in range(max(first, end - HOUR_TICKS), end):
            self._write(number, tick % HOUR_TICKS, ABSENT)

    def _ticks(self, number: int, tick: int, count: int) -> list[int]:
        """The codes of the last ticks up to this one that have data, oldest first."""
        begin = _BEGINS[number]
        count = min(count, tick - self._since(number) + 1)
        if count <= 0:
            return []
        ring = self._shorts[begin : begin + _MEANS]
        end = tick % HOUR_TICKS + 1
        found = ring[max(0, end - count) : end].tolist()
        if count > end:
            found = ring[end - count :].tolist() + found
        return [each for each in found if each != ABSENT] if ABSENT in found else found

    def _codes(self, number: int, tick: int) -> tuple[int, ...]:
        minute = self._ticks(number, tick, _MINUTE_TICKS)
        last = self._ticks(number, tick, 1)
        hour = self._hour(number, tick)
        day = hour if tick - self._since(number) < HOUR_TICKS else self._day(number, tick)
        return (last[0] if last else ABSENT, _mean(minute), _most(minute), *hour, *day)

    def _hour(self, number: int, tick: int) -> tuple[int, int, int]:
        codes = self._ticks(number, tick, HOUR_TICKS)
        if not codes:
            return ABSENT, ABSENT, ABSENT
        total = self._hours.get(number)
        if total is None:
            total = self._hours[number] = sum(map(value, codes))
        codes.sort()
        # A sum that changes by differences is off by their rounding.
        mean = min(code(max(0.0, total) / len(codes)), codes[-1])
        return mean, codes[-1], codes[rank(len(codes)) - 1]

    def _day(self, number: int, tick: int) -> tuple[int, int, int]:
        block = tick // BLOCK_TICKS
        closed = self._days.get(number)
        if closed is None or closed.block != block:
            closed = self._days[number] = self._closed(number, block)
        open_ = self._ticks(number, tick, tick % BLOCK_TICKS + 1)
        ticks = len(open_)
        used = sum(map(value, open_))
        weight = len(closed.means) * BLOCK_TICKS + ticks
        if not weight:
            return ABSENT, ABSENT, ABSENT
        mean = code((closed.sum * BLOCK_TICKS + used) / weight)
        newest = code(used / ticks) if ticks else None
        return mean, max(closed.peak, *open_, NOTHING), _percentile(closed.means, newest)

    def _closed(self, number: int, block: int) -> "_ClosedBlocks":
        """The blocks of the last day before this one."""
        begin = _BEGINS[number]
        first = max(self._since(number) // BLOCK_TICKS, block - _BLOCKS + 1)
        places = [begin + each % _BLOCKS for each in range(first, block)]
        means = [code for at in places if (code := self._shorts[_MEANS + at]) != ABSENT]
        peaks = [code for at in places if (code := self._shorts[_MAXIMA + at]) != ABSENT]
        total = sum(map(value, means))
        return _ClosedBlocks(block, array("H", sorted(means)), total, max(peaks, default=NOTHING))

    def _close_blocks(self, first: int, now: int) -> None:
        """Write the mean and the maximum of the block with the last data; those between it and
        `now` have none."""
        # Sums that are only ever changed by differences drift.
        self._hours.clear()
        if now > first + 1 and not self._is_active(_GAPS):
            self._activate(_GAPS)
        for number, begin in enumerate(_BEGINS):
            if not self._is_active(number):
                continue
            codes = self._ticks(number, self.tick, self.tick % BLOCK_TICKS + 1)
            self._write_block(begin, first, _mean(codes), _most(codes))
            for block in range(max(first + 1, now - _BLOCKS), now):
                self._write_block(begin, block, ABSENT, ABSENT)

    def _write_block(self, begin: int, block: int, mean: int, peak: int) -> None:
        at = begin + block % _BLOCKS
        self._shorts[_MEANS + at], self._shorts[_MAXIMA + at] = mean, peak


class _ClosedBlocks(NamedTuple):
    """The blocks of a day that no longer change."""

    block: int
    """The first block after them."""
    means: "array[int]"
    """Sorted codes."""
    sum: float
    peak: int


_CODES: Final = struct.Struct(f"<{CODES}H")


def _mean(codes: Sequence[int]) -> int:
    if not codes:
        return ABSENT
    if codes[0] == codes[-1] and codes.count(codes[0]) == len(codes):
        return codes[0]
    return code(sum(map(value, codes)) / len(codes))


def _percentile(ordered: "array[int]", another: int | None) -> int:
    """The 95th of sorted codes and another one: looked up, because to sort 288 codes for each
    detail of each report takes longer than everything else in it."""
    if another is None:
        return ordered[rank(len(ordered)) - 1]
    at, place = rank(len(ordered) + 1) - 1, bisect_left(ordered, another)
    if at == place:
        return another
    return ordered[at if at < place else at - 1]


def _amount(coded: int) -> float:
    return 0.0 if coded == ABSENT else value(coded)


def _most(codes: Sequence[int]) -> int:
    return max(codes, default=ABSENT)


def clear(memory: "memoryview[int]") -> None:
    """Make the memory that of a thing without details. Memory that is clear is not written, because
    the pages of a file that were never written take no room."""
    written = memory[_WRITTEN_AT] | memory[_WRITTEN_AT + 1] << 16
    for number, begin in enumerate(_BEGINS):
        if written >> number & 1:
            memory[begin : begin + _SERIES] = _ZEROED
    if any(memory[:_HEAD]):
        memory[:_HEAD] = memoryview(bytes(2 * _HEAD)).cast("H")


def with_marks(older: "memoryview[int]") -> bytes:
    """The memory of details that were written by an earlier release: without marks of the series
    that were written, and without that of gaps."""
    made = memoryview(bytearray(SIZE)).cast("H")
    more = _HEAD - _WRITTEN_AT - 2 * len(DETAILS)
    made[:_WRITTEN_AT] = older[:_WRITTEN_AT]
    made[_SINCE_AT : _SINCE_AT + 2 * len(DETAILS)] = older[
        _WRITTEN_AT : _WRITTEN_AT + 2 * len(DETAILS)
    ]
    written = 0
    for number, begin in enumerate(_BEGINS[:_GAPS]):
        series = older[begin - more : begin - more + _SERIES]
        if series != _ZEROED:
            made[begin : begin + _SERIES] = series
            written |= 1 << number
    made[_WRITTEN_AT], made[_WRITTEN_AT + 1] = written & 0xFFFF, written >> 16
    return made.tobytes()


class DetailCodes(NamedTuple):
    """A detail in a row."""

    number: int
    """Its position in DETAILS."""
    codes: tuple[int, ...]
    """Nine of them."""


def size_of_filled(filled: int) -> int:
    """The bytes of a row behind its masks; `filled` is the second mask."""
    return filled.bit_count() * _CODES.size


def known_details(row: bytes) -> int:
    """A bit for each detail that is known."""
    known: int = MASKS.unpack_from(row)[0] if row else 0
    return known & _ALL


def unpack(row: bytes) -> Iterator[DetailCodes]:
    """The details of a row that are not 0. Details of later releases are left out."""
    if not row:
        return
    _, filled = MASKS.unpack_from(row)
    at = MASKS.size
    number = 0
    while filled:
        if filled & 1:
            if number < len(DETAILS):
                yield DetailCodes(number, _CODES.unpack_from(row, at))
            at += _CODES.size
        filled >>= 1
        number += 1


_ALL: Final = (1 << len(DETAILS)) - 1


def numbers(row: bytes) -> list[tuple[float, ...]]:
    """Twelve numbers of each detail, in the order of DETAILS; UNKNOWN for missing ones."""
    known = known_details(row)
    found = [_ZEROS if known >> number & 1 else _UNKNOWNS for number in range(len(DETAILS))]
    for number, codes in unpack(row):
        found[number] = tuple(UNKNOWN if codes[at] == ABSENT else value(codes[at]) for at in SPREAD)
    return found


_ZEROS: Final = (0.0,) * len(SPREAD)
_UNKNOWNS: Final = (UNKNOWN,) * len(SPREAD)
