"""Text in the cells of a terminal: without control characters, and cut by width, not by length."""

import re
import unicodedata
from typing import Final

_SEQUENCES: Final = re.compile(
    # Commands of terminals (CSI), then titles, links and other strings (OSC, DCS, PM, APC, SOS).
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|$|(?=\x1b))"
    r"|\x1b[ -/]*[0-~]?"
)
_TAB: Final = "    "
_INVISIBLE: Final = frozenset(("Mn", "Me", "Cf"))
"""Categories of characters without a width: marks, and orders such as right-to-left, by which a
text could pretend to be another one."""
REPLACEMENT: Final = "?"


def clean(text: str, *, ascii_only: bool = False) -> str:
    """Return the text on one line, as a terminal can show it. Names, messages and the output of
    containers come from others, who must not be able to command the terminal."""
    if text.isascii() and text.isprintable():
        return text
    shown = _SEQUENCES.sub("", text).replace("\t", _TAB)
    shown = unicodedata.normalize("NFC", shown)
    return "".join(_clean_character(each, ascii_only) for each in shown)


def _clean_character(character: str, ascii_only: bool) -> str:
    if character.isascii():
        return character if character.isprintable() else ""
    if unicodedata.category(character) in _INVISIBLE:
        return ""
    return REPLACEMENT if ascii_only or not character.isprintable() else character


def width(text: str) -> int:
    """Return how many cells a clean text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_cells, text))


def _cells(character: str) -> int:
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, most: int, ellipsis: str = "") -> str:
    """Return as much of a clean text as fits; what is cut ends with the ellipsis."""
    if width(text) <= most:
        return text
    room = most - len(ellipsis)
    if room < 0:
        return ""
    kept = 0
    for index, each in enumerate(text):
        kept += _cells(each)
        if kept > room:
            return text[:index] + ellipsis
    return text


def fitted(text: str, cells: int, ellipsis: str = "", *, right: bool = False) -> str:
    """Return the text in exactly so many cells."""
    shown = cut(text, cells, ellipsis)
    space = " " * (cells - width(shown))
    return space + shown if right else shown + space
