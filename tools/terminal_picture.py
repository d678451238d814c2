"""Draw a screen of a terminal, as `tmux capture-pane -e -p` prints it, as an SVG file.

    tmux capture-pane -e -p | python tools/terminal_picture.py > screen.svg

The same screen gives the same picture to the byte.
"""

import re
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final, NamedTuple

CELL_WIDTH: Final = 8
CELL_HEIGHT: Final = 18
MARGIN: Final = 12
FOREGROUND: Final = "#d8dee9"
BACKGROUND: Final = "#1d2129"
COLOURS: Final = (
    "#3b4252",
    "#e06c75",
    "#98c379",
    "#e5c07b",
    "#61afef",
    "#c678dd",
    "#56b6c2",
    "#d8dee9",
)
"""Black, red, green, yellow, blue, magenta, cyan, white."""
_SEQUENCE: Final = re.compile(r"\x1b\[([0-9;]*)m|\x1b[()][0-9A-B]|\x0e|\x0f")


class TextLook(NamedTuple):
    """The attributes of a piece of text."""

    colour: int | None = None
    bold: bool = False
    dim: bool = False
    underline: bool = False
    reverse: bool = False


class Piece(NamedTuple):
    """Text of one look, and the cell where it begins."""

    column: int
    text: str
    look: TextLook


def changed(look: TextLook, codes: Sequence[int]) -> TextLook:
    """Return the look after a sequence of SGR codes; codes that kedge does not use are ignored."""
    for code in codes or [0]:
        if code == 0:
            look = TextLook()
        elif code in _SWITCHES:
            look = look._replace(**_SWITCHES[code])
        elif 30 <= code <= 37:
            look = look._replace(colour=code - 30)
        elif code == 39:
            look = look._replace(colour=None)
    return look


_SWITCHES: Final[dict[int, dict[str, bool]]] = {
    1: {"bold": True},
    2: {"dim": True},
    4: {"underline": True},
    7: {"reverse": True},
    22: {"bold": False, "dim": False},
    24: {"underline": False},
    27: {"reverse": False},
}


def pieces(line: str, look: TextLook) -> tuple[list[Piece], TextLook]:
    """Return the pieces of a line, and the look with which the next line begins."""
    found: list[Piece] = []
    column = position = 0
    for match in [*_SEQUENCE.finditer(line), None]:
        text = line[position : match.start() if match else len(line)]
        if text:
            found.append(Piece(column, text, look))
            column += width(text)
        if match is None:
            break
        position = match.end()
        if match[1] is not None:
            look = changed(look, [int(each or 0) for each in match[1].split(";")])
    return found, look


def width(text: str) -> int:
    """Return how many cells a text takes."""
    return sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text)


def svg(screen: str) -> str:
    """Return the picture of a screen."""
    lines = [line.rstrip("\n") for line in screen.splitlines()]
    plain = [_SEQUENCE.sub("", line) for line in lines]
    columns = max(map(width, plain), default=0)
    size = (columns * CELL_WIDTH + 2 * MARGIN, len(lines) * CELL_HEIGHT + 2 * MARGIN)
    look = TextLook()
    drawn: list[str] = []
    for row, line in enumerate(lines):
        found, look = pieces(line, look)
        drawn += [part for each in found for part in _drawn(each, row)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[0]}" height="{size[1]}"'
            f' viewBox="0 0 {size[0]} {size[1]}" font-size="13" xml:space="preserve"'
            ' font-family="DejaVu Sans Mono, Menlo, Consolas, monospace">',
            f'<rect width="100%" height="100%" rx="6" fill="{BACKGROUND}"/>',
            *drawn,
            "</svg>",
            "",
        ]
    )


def _drawn(piece: Piece, row: int) -> Iterator[str]:
    look = piece.look
    colour = FOREGROUND if look.colour is None else COLOURS[look.colour]
    x, y = MARGIN + piece.column * CELL_WIDTH, MARGIN + row * CELL_HEIGHT
    cells = width(piece.text)
    if look.reverse:
        yield (
            f'<rect x="{x}" y="{y}" width="{cells * CELL_WIDTH}" height="{CELL_HEIGHT}"'
            f' fill="{colour}"/>'
        )
        colour = BACKGROUND
    if not piece.text.strip():
        return
    more = ' font-weight="bold"' if look.bold else ""
    more += ' opacity="0.65"' if look.dim else ""
    more += ' text-decoration="underline"' if look.underline else ""
    # Each word has its own place: fonts differ, and a browser must not move the columns.
    for word in re.finditer(r"\S+(?: \S+)*", piece.text):
        left = x + width(piece.text[: word.start()]) * CELL_WIDTH
        length = width(word[0]) * CELL_WIDTH
        yield (
            f'<text x="{left}" y="{y + 13}" textLength="{length}" lengthAdjust="spacingAndGlyphs"'
            f' fill="{colour}"{more}>{escape(word[0])}</text>'
        )


if __name__ == "__main__":
    sys.stdout.write(svg(sys.stdin.read()))
