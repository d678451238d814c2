"""Lines of a screen as values: pieces of text with the role that decides about their colour."""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from kedge.cli.usage.top.live.text_cells import cut, width


class TextRole(StrEnum):
    """The meaning of a piece of text."""

    PLAIN = "plain"
    DIM = "dim"
    TITLE = "title"
    HEADING = "heading"
    SORTED = "sorted"
    """The heading of the column by which the table is sorted."""
    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"
    KEY = "key"


class Span(NamedTuple):
    """A clean piece of text."""

    text: str
    role: TextRole = TextRole.PLAIN


class ScreenLine(NamedTuple):
    """One line."""

    spans: tuple[Span, ...] = ()
    is_selected: bool = False

    @property
    def text(self) -> str:
        return "".join(span.text for span in self.spans)


class ScreenSize(NamedTuple):
    """Cells of the terminal."""

    height: int
    width: int


def line(text: str, role: TextRole = TextRole.PLAIN) -> ScreenLine:
    """Return a line of one piece."""
    return ScreenLine((Span(text, role),))


def clipped(spans: Iterable[Span], cells: int) -> tuple[Span, ...]:
    """Return the pieces that fit."""
    kept: list[Span] = []
    for span in spans:
        text = cut(span.text, cells)
        if text:
            kept.append(span._replace(text=text))
        cells -= width(text)
        if text != span.text:
            break
    return tuple(kept)


def with_right(left: Iterable[Span], right: Iterable[Span], cells: int) -> ScreenLine:
    """Return a line with pieces at its left and at its right end; the left ones go first if there
    is no room for both."""
    left, right = clipped(left, cells), tuple(right)
    taken = sum(width(span.text) for span in left)
    space = cells - taken - sum(width(span.text) for span in right)
    if space < 1:
        return ScreenLine(left)
    return ScreenLine((*left, Span(" " * space), *right))
