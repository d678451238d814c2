"""Functions on strings: the standard ones, the extension of cel-go (version 2) and patterns."""

import math
import re
from typing import Any, Final

from kedge.machinery import patterns
from kedge.machinery.cel.errors import CelError
from kedge.machinery.cel.functions import (
    Functions,
    first_traversed,
    first_traversed_twice,
    function,
    library,
    merged,
    method,
)
from kedge.machinery.cel.libraries.text_format import format_text
from kedge.machinery.cel.types import BOOL, DYN, INT, STRING, list_of
from kedge.machinery.cel.values import MAX_TEXT, size_of

_WORDS: Final = list_of(STRING)


def _char_at(text: str, at: int) -> str:
    if not 0 <= at <= len(text):
        raise CelError(f"index out of range: {at}")
    return text[at : at + 1]


def _index_of(text: str, part: str, start: int = 0) -> int:
    if start < 0:
        raise CelError(f"index out of range: {start}")
    if not part:
        return start
    return text.find(part, start)


def _last_index_of(text: str, part: str, start: int | None = None) -> int:
    if start is not None and start < 0:
        raise CelError(f"index out of range: {start}")
    if not part:
        return len(text) if start is None else start
    return text.rfind(part) if start is None else text.rfind(part, 0, start + len(part))


def _checked(text: str) -> str:
    if len(text) > MAX_TEXT:
        raise CelError("string size exceeds limit")
    return text


def _joined(parts: list[Any], separator: str = "") -> str:
    for part in parts:
        if not isinstance(part, str):
            raise CelError(f"join: invalid input: {part}")
    return separator.join(parts)


def _joined_price(parts: list[Any], separator: str = "") -> int:
    size = sum(size_of(part) for part in parts) + len(separator) * max(0, len(parts) - 1)
    if size > MAX_TEXT:
        raise CelError("string size exceeds limit")
    return math.ceil(size * 2 * 0.1)


_LOWER: Final = {code: code + 32 for code in range(65, 91)}
_UPPER: Final = {code: code - 32 for code in range(97, 123)}


def _replaced(text: str, old: str, new: str, count: int = -1) -> str:
    found = text.count(old) if count < 0 else min(count, text.count(old))
    if len(text) + found * (len(new) - len(old)) > MAX_TEXT:
        raise CelError("string size exceeds limit")
    return text.replace(old, new, count)


def _split(text: str, separator: str, count: int = -1) -> list[str]:
    if count == 0:
        return []
    if count == 1:
        return [text]
    if not separator:
        characters = list(text)
        if count < 0 or len(characters) <= count:
            return characters
        return [*characters[: count - 1], "".join(characters[count - 1 :])]
    return text.split(separator, count - 1 if count > 0 else -1)


def _substring(text: str, start: int, end: int | None = None) -> str:
    if end is None:
        if not 0 <= start <= len(text):
            raise CelError(f"index out of range: {start}")
        return text[start:]
    if start > end:
        raise CelError(f"invalid substring range. start: {start}, end: {end}")
    if not 0 <= start <= len(text):
        raise CelError(f"index out of range: {start}")
    if not 0 <= end <= len(text):
        raise CelError(f"index out of range: {end}")
    return text[start:end]


# White space by Unicode's definition; Python's strip knows four separators more.
_BLANKS: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_QUOTED: Final = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
    "\\": "\\\\", '"': '\\"',
}  # fmt: skip
_TO_QUOTE: Final = re.compile(r'[\a\b\f\n\r\t\v\\"]')


def quoted(text: str) -> str:
    """Return a string literal that stands for the text."""
    return f'"{_TO_QUOTE.sub(lambda match: _QUOTED[match[0]], text)}"'


def _contains(text: str, part: str) -> bool:
    return part in text


def _contains_price(text: str, part: str) -> int:
    return math.ceil(len(text) * 0.1) * math.ceil(len(part) * 0.1)


def pattern_price(text: str, pattern: str, *_: Any) -> int:
    """Return the price of matching a pattern."""
    return math.ceil((1 + len(text)) * 0.1) * math.ceil(len(pattern) * 0.25)


def _all_price(text: str, pattern: str, *_: Any) -> int:
    """Return the price of all matches of a pattern: upstream's, and more for a long text."""
    return pattern_price(text, pattern) + max(0, len(text) - 1000) * 5


def _compiled(pattern: str) -> patterns.Pattern:
    try:
        return patterns.compile_pattern(pattern)
    except ValueError as error:
        raise CelError(str(error)) from None


def _matches(text: str, pattern: str) -> bool:
    try:
        return _compiled(pattern).search(text)
    except OverflowError as error:
        raise CelError(str(error)) from None


def _find(text: str, pattern: str) -> str:
    try:
        return next(iter(_compiled(pattern).find_all(text, 1)), "")
    except OverflowError as error:
        raise CelError(str(error)) from None


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    try:
        return _compiled(pattern).find_all(text, limit)
    except OverflowError as error:
        raise CelError(str(error)) from None


_TEXT: Final = (STRING,)
_TWO: Final = (STRING, STRING)
_TWO_AND_INT: Final = (STRING, STRING, INT)

_STANDARD: Final[Functions] = library(
    contains=(method("contains_string", _TWO, BOOL, _contains, _contains_price),),
    startsWith=(method("starts_with_string", _TWO, BOOL, str.startswith, first_traversed),),
    endsWith=(method("ends_with_string", _TWO, BOOL, str.endswith, first_traversed),),
    matches=(
        method("matches_string", _TWO, BOOL, _matches, pattern_price),
        function("matches", _TWO, BOOL, _matches, pattern_price),
    ),
)


def _list_price(text: str, *_: Any) -> int:
    return int(len(text.encode("utf-8", "surrogatepass")) * 0.1)


_EXTENSION: Final[Functions] = library(
    charAt=(method("string_char_at_int", (STRING, INT), STRING, _char_at),),
    indexOf=(
        method("string_index_of_string", _TWO, INT, _index_of, _list_price),
        method("string_index_of_string_int", _TWO_AND_INT, INT, _index_of, _list_price),
    ),
    lastIndexOf=(
        method("string_last_index_of_string", _TWO, INT, _last_index_of, _list_price),
        method("string_last_index_of_string_int", _TWO_AND_INT, INT, _last_index_of, _list_price),
    ),
    lowerAscii=(
        method("string_lower_ascii", _TEXT, STRING, lambda t: t.translate(_LOWER), first_traversed),
    ),
    upperAscii=(
        method("string_upper_ascii", _TEXT, STRING, lambda t: t.translate(_UPPER), first_traversed),
    ),
    replace=(
        method(
            "string_replace_string_string",
            (STRING, STRING, STRING),
            STRING,
            _replaced,
            first_traversed_twice,
        ),
        method(
            "string_replace_string_string_int",
            (STRING, STRING, STRING, INT),
            STRING,
            _replaced,
            first_traversed_twice,
        ),
    ),
    split=(
        method("string_split_string", _TWO, _WORDS, _split, first_traversed_twice),
        method("string_split_string_int", _TWO_AND_INT, _WORDS, _split, first_traversed_twice),
    ),
    substring=(
        method("string_substring_int", (STRING, INT), STRING, _substring, first_traversed),
        method("string_substring_int_int", (STRING, INT, INT), STRING, _substring, first_traversed),
    ),
    trim=(method("string_trim", _TEXT, STRING, lambda t: t.strip(_BLANKS), first_traversed),),
    join=(
        method("list_join", (_WORDS,), STRING, _joined, _joined_price),
        method("list_join_string", (_WORDS, STRING), STRING, _joined, _joined_price),
    ),
    format=(method("string_format", (STRING, list_of(DYN)), STRING, format_text, first_traversed),),
    strings__quote=(function("strings_quote", _TEXT, STRING, quoted, first_traversed),),
)

_PATTERNS: Final[Functions] = library(
    find=(method("string_find_string", _TWO, STRING, _find, pattern_price),),
    findAll=(
        method("string_find_all_string", _TWO, _WORDS, _find_all, _all_price),
        method("string_find_all_string_int", _TWO_AND_INT, _WORDS, _find_all, _all_price),
    ),
)

TEXT: Final = merged(_STANDARD, _EXTENSION, _PATTERNS)
