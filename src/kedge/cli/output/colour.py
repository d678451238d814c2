"""Colours for people: only on a terminal, and not if NO_COLOR is set (https://no-color.org)."""

import os
from collections.abc import Mapping
from typing import Final, Literal, TextIO

Colour = Literal["red", "yellow", "green"]
_CODES: Final[dict[Colour, int]] = {"red": 31, "yellow": 33, "green": 32}


def painted(
    text: str, colour: Colour, stream: TextIO, environment: Mapping[str, str] = os.environ
) -> str:
    """Return the text in a colour, or as it is if the stream shows none."""
    if not shows_colours(stream, environment):
        return text
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m"


def shows_colours(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Return whether the stream is a terminal whose user wants colours."""
    if environment.get("NO_COLOR") or environment.get("TERM") == "dumb":
        return False
    return stream.isatty()
