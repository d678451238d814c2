"""How many lists and objects a JSON text contains, counted before they are made."""

import re
from typing import Final

MOST: Final = 300_000
"""More lists and objects are refused. A decoder makes all of them in one call, which keeps the
interpreter's lock: three megabytes of brackets stop the event loop for a third of a second, this
many for some fifty milliseconds. Large documents of real use have a tenth of them."""

_NO_BRACKETS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[^"\[{]++', re.DOTALL)


def has_too_many(text: bytes) -> bool:
    """Whether a text contains more lists and objects than are decoded."""
    if text.count(b"[") + text.count(b"{") <= MOST:
        return False
    return count_containers(text) > MOST


def count_containers(text: bytes) -> int:
    """Count the lists and objects, not the brackets in strings. Goes from string to string, so that
    other threads have their turn in between."""
    found = at = 0
    while at < len(text):
        skipped = _NO_BRACKETS.match(text, at)
        if skipped is None:
            # A bracket, or a quote of a string without an end.
            found, at = found + (text[at] != 0x22), at + 1
        else:
            at = skipped.end()
    return found
