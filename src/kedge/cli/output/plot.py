"""Drawings of amounts in lines of text: sparklines, bars and plots with axes."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

Points = Sequence[float | None]
"""Amounts at equal distances of time, the oldest first; None where nothing was measured."""


class Glyphs(NamedTuple):
    """The characters of drawings: those of Unicode, or ASCII for other terminals."""

    heights: str
    """Of a sparkline, from the least amount to the greatest."""
    gap: str
    """A point without data."""
    full: str
    rest: str
    """The used and the unused part of a bar."""
    full_mark: str
    rest_mark: str
    """The request, inside and outside of the used part."""
    rule: str
    """A horizontal line of a plot."""
    corner: str
    side: str
    tick: str
    floor: str
    """The axes of a plot; a tick has a label."""
    has_dots: bool
    """Whether a cell of a plot has eight dots (Braille), not one."""


UNICODE: Final = Glyphs("▁▂▃▄▅▆▇█", " ", "━", "─", "┿", "┼", "╌", "└", "│", "┤", "─", True)
ASCII: Final = Glyphs("_.:-=+*#", " ", "=", "-", "|", "|", "-", "+", "|", "|", "-", False)


def glyphs(encoding: str | None, environment: Mapping[str, str] = os.environ) -> Glyphs:
    """Return the characters that a terminal can draw."""
    # The font of the Linux console has neither the heights nor the dots.
    can = "utf" in (encoding or "").lower() and environment.get("TERM") != "linux"
    return UNICODE if can else ASCII


def resampled(values: Points, width: int) -> list[float | None]:
    """Return as many points as fit in the width: each is the greatest of those it stands for."""
    if len(values) <= width:
        return list(values)
    edges = [index * len(values) // width for index in range(width + 1)]
    return [_greatest(values[a:b]) for a, b in pairwise(edges)]


def _greatest(values: Points) -> float | None:
    return max((each for each in values if each is not None), default=None)


def sparkline(values: Points, width: int, *, top: float = 0.0, draw: Glyphs = UNICODE) -> str:
    """Return one line of heights between 0 and `top`, or the greatest amount; the newest is at the
    right end."""
    shown = resampled(values, width)
    scale = max(top, _greatest(shown) or 0.0) or 1.0
    return "".join(_height(each, scale, draw) for each in shown).rjust(width)


def _height(value: float | None, scale: float, draw: Glyphs) -> str:
    if value is None:
        return draw.gap
    last = len(draw.heights) - 1
    return draw.heights[max(0, min(int(value * len(draw.heights) / scale), last))]


class BarCells(NamedTuple):
    """How many cells of a bar are used, and which one is that of the request."""

    used: int
    mark: int | None


def bar_cells(value: float, request: float | None, limit: float | None, width: int) -> BarCells:
    """Return where a bar ends and where its mark is. The bar ends at the limit; without one, at
    the greater of request and amount."""
    end = limit or max(request or 0.0, value) or 1.0
    used = min(math.ceil(value * width / end - 1e-9), width) if value > 0 else 0
    if not request or request > end:
        return BarCells(used, None)
    return BarCells(used, min(int(request * width / end), width - 1))


def bar(
    value: float,
    request: float | None,
    limit: float | None,
    width: int,
    *,
    draw: Glyphs = UNICODE,
) -> str:
    """Return a bar of the amount against its limit, with a mark at the request."""
    used, mark = bar_cells(value, request, limit, width)
    cells = [draw.full] * used + [draw.rest] * (width - used)
    if mark is not None:
        cells[mark] = draw.full_mark if mark < used else draw.rest_mark
    return "".join(cells)


class Rule(NamedTuple):
    """A horizontal line of a plot, such as a limit."""

    value: float
    label: str


_DOTS: Final = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bits of a Braille cell, by row and column."""
_BRAILLE: Final = 0x2800


class Plot(NamedTuple):
    """The size of a plot, and how its axes are labelled."""

    width: int
    """Cells between the axis and the labels of rules."""
    height: int
    amount: Callable[[float], str]
    """An amount as text, for the vertical axis."""
    start: str = ""
    end: str = ""
    """The ends of the horizontal axis."""
    draw: Glyphs = UNICODE

    def lines(self, values: Points, rules: Sequence[Rule] = ()) -> list[str]:
        """Return the course of the amount, with the rules across it and their labels at the
        right."""
        top = max([_greatest(values) or 0.0, *(each.value for each in rules)]) or 1.0
        grid = self._course(values, top)
        labels = [""] * self.height
        for each in rules:
            row = self._row(each.value, top)
            labels[row] = ", ".join(filter(None, (labels[row], each.label)))
            grid[row] = [self.draw.rule if cell == " " else cell for cell in grid[row]]
        left = self._left(top)
        margin = max(map(len, left))
        drawn = [
            f"{text.rjust(margin)} {self._side(text)}{''.join(cells)} {label}".rstrip()
            for text, cells, label in zip(left, grid, labels, strict=True)
        ]
        return [*drawn, *self._bottom(margin)]

    def _side(self, text: str) -> str:
        return self.draw.tick if text else self.draw.side

    def _left(self, top: float) -> list[str]:
        texts = [""] * self.height
        texts[0], texts[-1] = self.amount(top), self.amount(0.0)
        return texts

    def _bottom(self, margin: int) -> list[str]:
        axis = " " * (margin + 1) + self.draw.corner + self.draw.floor * self.width
        if not self.start and not self.end:
            return [axis]
        gap = max(1, self.width - len(self.start) - len(self.end))
        return [axis, " " * (margin + 2) + self.start + " " * gap + self.end]

    def _row(self, value: float, top: float) -> int:
        """Return the line of cells of an amount, counted from above."""
        steps = self.height * self._rows_per_cell
        return (steps - 1 - self._step(value, top)) // self._rows_per_cell

    def _step(self, value: float, top: float) -> int:
        steps = self.height * self._rows_per_cell
        return max(0, min(round(value / top * (steps - 1)), steps - 1))

    @property
    def _rows_per_cell(self) -> int:
        return 4 if self.draw.has_dots else 1

    def _course(self, values: Points, top: float) -> list[list[str]]:
        columns = 2 if self.draw.has_dots else 1
        points = _stretched(values, self.width * columns)
        bits = [[0] * self.width for _ in range(self.height)]
        rows = self._rows_per_cell
        steps = self.height * rows
        before: int | None = None
        for x, value in enumerate(points):
            step = None if value is None else self._step(value, top)
            if step is not None:
                # A steep course is one line, not two points far apart.
                low, high = sorted((step, step if before is None else before))
                for each in range(low, high + 1):
                    y = steps - 1 - each
                    bits[y // rows][x // columns] |= _DOTS[y % rows][x % columns]
            before = step
        return [[self._cell(each) for each in line] for line in bits]

    def _cell(self, bits: int) -> str:
        if not bits:
            return " "
        return chr(_BRAILLE + bits) if self.draw.has_dots else "*"


def _stretched(values: Points, width: int) -> list[float | None]:
    """Return exactly `width` points."""
    if len(values) >= width or not values:
        return resampled(values, width)
    return [values[index * len(values) // width] for index in range(width)]
