"""Regular expressions that users write: RE2's syntax, matched in time proportional to the text.

This is the only module that uses the RE2 library. Python's own engine backtracks: `^(a+)+$`
takes 13 s for 28 characters, so the author of a pattern could block the server.
"""

import time
from itertools import islice
from typing import Any, Final

from kedge.machinery.patience import spend
from kedge.machinery.pattern_weight import unicode_classes
from kedge.machinery.short_cache import short_cache

MAX_MEMORY: Final = 8 << 20
"""Bytes for the program of one pattern and for the states that are kept of its automaton, as RE2
has it by default. It is room for some 300,000 instructions; `[\\pL\\pN]{1,63}` has 130,000."""
MAX_STEPS: Final = 1 << 30
"""RE2 falls back from its automaton to trying every instruction for every byte: the time that a
match takes at worst is the product of both, some 8 ns each. More than this is not tried."""
_MEASURED: Final = 1 << 17
"""A match of fewer steps is over within a millisecond."""
MAX_LENGTH: Final = 1 << 13
"""Characters of one pattern. The compiler's time grows with their square (`a?a?a?`), and no other
thread runs meanwhile: 60 ms for as many."""
MAX_UNICODE_CLASSES: Final = 256
"""Classes of Unicode in one pattern, counted as often as they are repeated."""
_REMEMBERED: Final = 256
_COMPILED: Final = 100
"""Patience of the event loop that the compilation of one pattern uses."""

# RE2's error messages, and those of Go's regexp/syntax for the same errors.
_GO_WORDS: Final = {
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "no argument for repetition operator": "missing argument to repetition operator",
    "trailing \\": "trailing backslash at end of expression",
    "invalid named capture group": "invalid named capture",
}


class Pattern:
    """A compiled expression."""

    __slots__ = ("_finditer", "_search", "cost")

    def __init__(self, compiled: Any) -> None:
        self._search = compiled.search
        self._finditer = compiled.finditer
        self.cost: int = compiled.programsize
        """How many steps a match takes at worst, for each byte of the text."""

    def search(self, text: str) -> bool:
        """Return whether the expression matches anywhere in the text."""
        return self.timed_search(text)[0]

    def find_all(self, text: str, limit: int = -1) -> list[str]:
        """Return the parts of the text that match, at most `limit` of them if it is not negative.

        OverflowError if it might take long.
        """
        if len(text) * self.cost > MAX_STEPS:
            raise OverflowError(f"the text is too long to be matched: {len(text)} characters")
        try:
            found = self._finditer(text)
            return [each[0] for each in (found if limit < 0 else islice(found, limit))]
        except UnicodeEncodeError:
            return []

    def timed_search(self, text: str) -> tuple[bool, int]:
        """Return whether the expression matches, and how many microseconds that took.

        The interpreter is free for other threads meanwhile. OverflowError if it might take long.
        """
        steps = len(text) * self.cost
        if steps > MAX_STEPS:
            raise OverflowError(f"the text is too long to be matched: {len(text)} characters")
        begin = time.thread_time_ns() if steps > _MEASURED else 0
        try:
            matched = self._search(text) is not None
        except UnicodeEncodeError:
            matched = False  # half a surrogate pair: not text, so nothing matches
        return matched, (time.thread_time_ns() - begin) // 1000 if begin else 1


def compile_pattern(pattern: str) -> Pattern:
    """Compile the expression; ValueError in Go's words if Go would refuse it, or if it is large."""
    compiled = _compiled(pattern)
    if isinstance(compiled, str):
        raise ValueError(f"error parsing regexp: {compiled}")
    return compiled


@short_cache(_REMEMBERED, longest=MAX_LENGTH)
def _compiled(pattern: str) -> Pattern | str:
    """Return the compiled expression, or its error, which may take as long to find."""
    spend(_COMPILED)
    import re2  # a server gets ready sooner without what few kinds make it use

    if len(pattern) > MAX_LENGTH:
        return f"expression too large: {len(pattern)} characters"
    if unicode_classes(pattern) > MAX_UNICODE_CLASSES:
        return "expression too large"
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_MEMORY
    if r"\C" in pattern.replace(r"\\", ""):
        return r"invalid escape sequence: `\C`"
    try:
        compiled = re2.compile(pattern, options)
    except UnicodeEncodeError:
        return "invalid UTF-8"
    except re2.error as error:
        return _in_go_words(error)
    return Pattern(compiled)


def _in_go_words(error: Exception) -> str:
    said = error.args[0] if error.args else ""
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    what, _, where = text.partition(": ")
    if what.startswith("pattern too large"):
        return "expression too large"
    return f"{_GO_WORDS.get(what, what)}: `{where}`" if where else _GO_WORDS.get(what, what)
