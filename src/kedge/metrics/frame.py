"""Frame: the usage of one node and its pods over all windows, at the end of one tick."""

from array import array
from collections.abc import Sequence
from itertools import chain
from math import ceil
from struct import Struct
from typing import Final, NamedTuple, overload

from kedge.metrics import detail_windows
from kedge.metrics.series import Series
from kedge.metrics.series_memory import UNKNOWN
from kedge.metrics.windows import CORE, RESOURCES, STATISTICS, WINDOWS

WIDTH: Final = len(WINDOWS) * len(STATISTICS) * len(CORE)
"""Numbers in a row: for each window, for each statistic, cpu and then memory."""
MOST: Final = 1 << 61
"""Numbers of a frame are below this."""
ROW: Final = Struct(f"={WIDTH}q")
_FLOATS: Final = Struct(f"={WIDTH}f")
_PAIR: Final = Struct("=2q")
_PER_WINDOW: Final = len(STATISTICS) * len(CORE)
_LIKELY: Final = 1 << 20
"""Cores below which no further check is needed."""


class FrameContainer(NamedTuple):
    """A container, of a pod or of the system."""

    name: str
    since: int
    """The second at which it was first measured."""
    row: int
    """The number of its row."""


class FramePod(NamedTuple):
    """A pod."""

    namespace: str
    name: str
    uid: str
    since: int
    end_tick: int
    """The last tick of a pod that has ended; 0 for that of the frame."""
    row: int
    """The row of its total; a pod with one container shares the row of the container."""
    containers: Sequence[FrameContainer]


class Frame(NamedTuple):
    """The report of a node. Row 0 is the machine."""

    node: str
    uid: str
    end_tick: int
    resolution: int
    """Seconds between two frames of this node."""
    since: int
    """The second at which the machine was first measured."""
    systems: Sequence[FrameContainer]
    pods: Sequence[FramePod]
    values: "array[float] | array[int]"
    """All rows: as measured, in cores and bytes ("f"), or as sent, in whole numbers ("q")."""
    details: Sequence[bytes] = ()
    """The details of each row, as `kedge.metrics.detail_windows` has them; empty if the node has
    measured none."""

    def row(self, number: int) -> tuple[float, ...]:
        """The numbers of one row for all resources, in the order of `index`; cpu in cores, the
        others in bytes or as the table of details says; UNKNOWN for those that are missing."""
        if self.values.typecode == "f":
            core = _FLOATS.unpack_from(self.values, number * _FLOATS.size)
        else:
            amounts = self.amounts(number)
            core = tuple(
                _bytes(each) if at & 1 else _cores(each) for at, each in enumerate(amounts)
            )
        details = detail_windows.numbers(self.detail_row(number))
        return (*core, *chain.from_iterable(details))

    def detail_row(self, number: int) -> bytes:
        """The details of one row; empty if there are none."""
        return self.details[number] if self.details else b""

    def amounts(self, number: int) -> tuple[int, ...]:
        """The whole numbers of one row: billionths of a core, kibibytes."""
        return ROW.unpack_from(self.values, number * ROW.size)

    def pair(self, number: int, at: int) -> tuple[int, int]:
        """Two neighbours among these numbers: cpu and memory of one statistic."""
        return _PAIR.unpack_from(self.values, number * ROW.size + 8 * at)


class DetailRows(Sequence[bytes]):
    """The details of all rows of a frame, as they were received: one piece of memory for a node
    instead of one for each pod. A row is cut out when it is read; most are replaced unread."""

    __slots__ = ("_ends", "_text")

    def __init__(self, text: bytes, count: int) -> None:
        """Raises struct.error if the text has fewer rows, and ValueError if it has more."""
        self._text = text
        self._ends = array("I")
        end, masks_of, size = 0, detail_windows.MASKS.unpack_from, detail_windows.MASKS.size
        for _ in range(count):
            end += size + detail_windows.size_of_filled(masks_of(text, end)[1])
            self._ends.append(end)
        if end != len(text):
            raise ValueError("there are bytes behind the last row")

    def __len__(self) -> int:
        return len(self._ends)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DetailRows) and (self._text, self._ends) == (
            other._text,
            other._ends,
        )

    __hash__ = None  # type: ignore[assignment]

    @overload
    def __getitem__(self, at: int) -> bytes: ...

    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...

    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(len(self)))]
        return self._text[self._ends[at - 1] if at else 0 : self._ends[at]]


def index(window: str, statistic: str, resource: str) -> int:
    """The position of a number in a row: cpu and memory by turns, then each detail by itself."""
    at = list(WINDOWS).index(window) * len(STATISTICS) + STATISTICS.index(statistic)
    if resource in CORE:
        return at * len(CORE) + CORE.index(resource)
    return WIDTH + (RESOURCES.index(resource) - len(CORE)) * len(detail_windows.SPREAD) + at


def row_of(cpu: Series, memory: Series) -> "array[float]":
    """One row, of two series; UNKNOWN stands for missing numbers."""
    numbers = array("f", [UNKNOWN]) * WIDTH
    at = 0
    for name in WINDOWS:
        used, held = cpu.window(name), memory.window(name)
        if used is not None:
            numbers[at], numbers[at + 2], numbers[at + 4] = used
        if held is not None:
            numbers[at + 1], numbers[at + 3], numbers[at + 5] = held
        at += _PER_WINDOW
    return numbers


def in_whole_numbers(frame: Frame) -> Frame:
    """The frame with its rows as they are sent; decision 14 explains why in whole numbers."""
    if frame.values.typecode == "q":
        return frame
    numbers = array("q", bytes(8 * len(frame.values)))
    cores, sizes = frame.values[::2], frame.values[1::2]
    numbers[::2] = array(
        "q", [int(n * 1e9 + 0.5) if 0 <= n < _LIKELY else _nanos(n) for n in cores]
    )
    numbers[1::2] = array("q", [_kibibytes(size) for size in sizes])
    return frame._replace(values=numbers)


def _nanos(cores: float) -> int:
    """Billionths of a core; -1 for a missing value, or NaN."""
    return min(int(cores * 1e9 + 0.5), MOST - 1) if 0 <= cores < MOST else -1


def _kibibytes(size: float) -> int:
    return ceil(size / 1024) if 0 <= size < MOST else -1


def _cores(nanos: int) -> float:
    return nanos / 1e9 if nanos >= 0 else UNKNOWN


def _bytes(kibibytes: int) -> float:
    return float(kibibytes << 10) if kibibytes >= 0 else UNKNOWN
