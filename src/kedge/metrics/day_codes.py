"""DayCodes: the codes of all ticks of a day, ten bits each.

Four codes share five bytes: the low bytes of the four, then two more bits of each. Two bytes for
each code would take 6.5 KB more per series, of 18. The five bytes are together, so that a tick
touches one place, and a page that is lost with the power takes no other page's codes with it.
"""

import sys
from typing import Final

from kedge.metrics.scale import ABSENT, CODES
from kedge.metrics.series_memory import CODE_BYTES, CODE_GROUP, DAY_TICKS

_GROUP_BYTES: Final = CODE_GROUP + 1
_HIGH_BITS: Final = tuple(
    bytes(each >> 2 * number & 3 for each in range(256)) for number in range(CODE_GROUP)
)
"""For each code of a group: its two bits in every value of the fifth byte."""
_LOW_AT: Final = 0 if sys.byteorder == "little" else 1


class DayCodes:
    """A ring of codes, in memory of the caller, by the number of the tick modulo DAY_TICKS."""

    __slots__ = ("_memory",)

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory

    def __getitem__(self, tick: int) -> int:
        group, number = divmod(tick % DAY_TICKS, CODE_GROUP)
        at = group * _GROUP_BYTES
        return self._memory[at + number] | (self._memory[at + CODE_GROUP] >> 2 * number & 3) << 8

    def put(self, tick: int, code: int) -> int:
        """Set the code of a tick; return that of a day before."""
        memory = self._memory
        group, number = divmod(tick % DAY_TICKS, CODE_GROUP)
        at, shift = group * _GROUP_BYTES, 2 * number
        low, high = memory[at + number], memory[at + CODE_GROUP]
        memory[at + number] = code & 0xFF
        memory[at + CODE_GROUP] = high & ~(3 << shift) | code >> 8 << shift
        return low | (high >> shift & 3) << 8

    def is_empty(self) -> bool:
        """Whether all of them are ABSENT."""
        return not self._memory.tobytes().strip(b"\0")

    def all(self) -> "memoryview[int]":
        """All codes, by tick modulo DAY_TICKS: strides of the whole memory, because a loop over the
        codes takes a hundred times as long."""
        packed = self._memory.tobytes()
        high = packed[CODE_GROUP::_GROUP_BYTES]
        unpacked = bytearray(2 * DAY_TICKS)
        for number, bits in enumerate(_HIGH_BITS):
            at = 2 * number
            unpacked[at + _LOW_AT :: 2 * CODE_GROUP] = packed[number::_GROUP_BYTES]
            unpacked[at + 1 - _LOW_AT :: 2 * CODE_GROUP] = high.translate(bits)
        return memoryview(unpacked).cast("H")

    def drop(self, first: int, last: int) -> None:
        """Record that these ticks have no data, both included."""
        if last - first + 1 >= DAY_TICKS:
            self._memory[:] = bytes(CODE_BYTES)
            return
        tick = first
        while tick <= last:
            whole = tick % CODE_GROUP == 0 and tick % DAY_TICKS + CODE_GROUP <= DAY_TICKS
            if whole and tick + CODE_GROUP <= last + 1:
                at = tick % DAY_TICKS // CODE_GROUP * _GROUP_BYTES
                self._memory[at : at + _GROUP_BYTES] = bytes(_GROUP_BYTES)
                tick += CODE_GROUP
            else:
                self.put(tick, ABSENT)
                tick += 1


def packed(codes: "memoryview[int]") -> bytes:
    """The memory of these codes, by tick modulo DAY_TICKS; larger ones than there are become
    ABSENT."""
    known = [code if code < CODES else ABSENT for code in codes]
    made = bytearray(CODE_BYTES)
    high = [0] * (DAY_TICKS // CODE_GROUP)
    for number in range(CODE_GROUP):
        mine = known[number::CODE_GROUP]
        made[number::_GROUP_BYTES] = bytes(code & 0xFF for code in mine)
        high = [bits | code >> 8 << 2 * number for bits, code in zip(high, mine, strict=True)]
    made[CODE_GROUP::_GROUP_BYTES] = bytes(high)
    return bytes(made)
