"""Reads window files of layout 4, so that an upgrade keeps the history of a day.

They have the codes of a day in two bytes each, and neither marks of written details nor a series of
gaps. Everything else is as in `window_file`.
"""

import os
import struct
import zlib
from array import array
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final, NamedTuple

from kedge.metrics.detail_windows import with_marks
from kedge.metrics.scale import ABSENT, CODES
from kedge.metrics.series_memory import (
    CODE_BYTES,
    CODE_GROUP,
    DAY_TICKS,
    GROUP_BYTES,
    HOUR_TICKS,
)
from kedge.metrics.windows import MINUTE

LAYOUT: Final = 4
SLOT_BYTES: Final = 80_848
_SLOTS: Final = 25
_SERIES_BYTES: Final = 24_348
_FLOAT_BYTES: Final = 6_348
_SERIES_AT: Final = 256
_DETAILS_AT: Final = _SERIES_AT + 2 * _SERIES_BYTES
_CELLS: Final = 2 * 4 * MINUTE + 3 * 8
_KEY: Final = struct.Struct("<I64s64s")
_STATE: Final = struct.Struct("<qqqqddd")


class OlderSlot(NamedTuple):
    """The data of one thing, in the present layout."""

    uid: bytes
    container: bytes
    state: Sequence[float]
    """The fields of a TrackState."""
    minutes: "Sequence[array[float]]"
    """The last minute of cpu and of memory."""
    series: Sequence[bytes]
    details: bytes


def slots(file: int, header: int, piece: int) -> Iterator[OlderSlot]:
    """The slots in use, with the sizes of the header and of a piece; those with a wrong name are
    left out."""
    for number in count():
        read = os.pread(file, piece, header + number * piece)
        if len(read) < piece:
            return
        yield from _slots(memoryview(read))


def _slots(piece: memoryview) -> Iterator[OlderSlot]:
    times, minute = 8 * _SLOTS, 4 * MINUTE * _SLOTS
    seconds, counters = (piece[at : at + times].cast("q") for at in (0, times))
    ats = piece[2 * times : 3 * times].cast("d")
    values = piece[3 * times : 3 * times + 2 * minute].cast("f")
    for place in range(_SLOTS):
        begin = _SLOTS * _CELLS + place * SLOT_BYTES
        slot = piece[begin : begin + SLOT_BYTES]
        checksum, uid, container = _KEY.unpack_from(slot)
        if not checksum or zlib.crc32(slot[4 : _KEY.size]) != checksum:
            continue
        rest = _STATE.unpack_from(slot, _KEY.size)
        yield OlderSlot(
            uid,
            container,
            (seconds[place], counters[place], ats[place], *rest),
            [
                array("f", values[at + place : at + MINUTE * _SLOTS : _SLOTS].tolist())
                for at in (0, MINUTE * _SLOTS)
            ],
            [
                _series(slot[at : at + _SERIES_BYTES])
                for at in (_SERIES_AT, _SERIES_AT + _SERIES_BYTES)
            ],
            with_marks(slot[_DETAILS_AT:].cast("H")),
        )


def _series(older: memoryview) -> bytes:
    codes = older[_FLOAT_BYTES : _FLOAT_BYTES + 2 * DAY_TICKS].cast("H")
    covered = older[_FLOAT_BYTES + 2 * DAY_TICKS :]
    assert len(covered) == 2 * HOUR_TICKS
    return b"".join([older[:_FLOAT_BYTES], covered, _packed(codes)])


def _packed(codes: "memoryview[int]") -> bytes:
    """The memory of these codes, by tick modulo DAY_TICKS; larger ones than there are become
    ABSENT."""
    known = [code if code < CODES else ABSENT for code in codes]
    made = bytearray(CODE_BYTES)
    high = [0] * (DAY_TICKS // CODE_GROUP)
    for number in range(CODE_GROUP):
        mine = known[number::CODE_GROUP]
        made[number::GROUP_BYTES] = bytes(code & 0xFF for code in mine)
        high = [bits | code >> 8 << 2 * number for bits, code in zip(high, mine, strict=True)]
    made[CODE_GROUP::GROUP_BYTES] = bytes(high)
    return bytes(made)
