"""Text in columns: cells that end in a tab are made as wide as those above and below them.

Kubernetes lays out all it prints in this way, so what is built of the same lines looks the same.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple


class TabLayout(NamedTuple):
    """How wide a column is: its widest cell and the padding, but no less than `least`."""

    padding: int
    least: int = 0
    tabs: bool = False
    """Whether gaps are made of tabs, for a terminal that has a stop every eight columns."""


TABLE = TabLayout(padding=3, least=6)
"""The layout of `kubectl get`."""
DESCRIPTION = TabLayout(padding=2)
"""The layout of `kubectl describe`."""
TABBED = TabLayout(padding=1, tabs=True)
"""The layout of `kubectl describe` in its early versions."""

_STOP = 8


def align(lines: Iterable[str], layout: TabLayout) -> list[str]:
    """The lines with every tab replaced by a gap; a column ends where a line has no tab for it."""
    rows = [line.split("\t") for line in lines]
    widths = [[0] * (len(row) - 1) for row in rows]
    for column in range(max(map(len, rows), default=0)):
        for block in _blocks([len(wide) > column for wide in widths]):
            width = width_of([rows[i][column] for i in block], layout)
            for i in block:
                widths[i][column] = width
    return [spaced(row, wide, layout) for row, wide in zip(rows, widths, strict=True)]


def _blocks(having: Sequence[bool]) -> Iterator[list[int]]:
    """The lines that have a column, as runs that no other line interrupts."""
    for has_it, run in groupby(range(len(having)), having.__getitem__):
        if has_it:
            yield list(run)


def width_of(cells: Iterable[str], layout: TabLayout) -> int:
    """How wide a column of these cells is."""
    width = max(layout.least, max(map(len, cells)) + layout.padding)
    return math.ceil(width / _STOP) * _STOP if layout.tabs else width


def spaced(row: Sequence[str], widths: Sequence[int], layout: TabLayout) -> str:
    """One line; the last cell is followed by nothing."""
    cells = [
        cell + "\t" * math.ceil((width - len(cell)) / _STOP) if layout.tabs else cell.ljust(width)
        for cell, width in zip(row[:-1], widths, strict=True)
    ]
    return "".join([*cells, row[-1]])
