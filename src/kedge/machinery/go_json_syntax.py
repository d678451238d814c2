"""The errors of Go's JSON scanner, which Kubernetes passes on to clients."""

import re
from typing import Final

from kedge.machinery import patience

_BLANKS: Final = re.compile(r"[ \t\r\n]*+")
_DIGITS: Final = frozenset("0123456789")
_ESCAPES: Final = frozenset('bfnrt\\/"')
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_WELL_FORMED: Final = re.compile(r'(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
"""The part of a string that has no fault. The outer repetition is not possessive: Python
before 3.11.5 would then accept the right beginning of a wrong escape (gh-106052)."""
_MANY_DIGITS: Final = re.compile(r"[0-9]*+")
_LITERALS: Final = {"t": "true", "f": "false", "n": "null"}
_END: Final = "unexpected end of JSON input"
_MOST: Final = 64 << 10
"""Longer texts are not scanned, because a scan takes a second for some megabytes."""
_COST: Final = 8
"""Of a value: 2,500 of them, which take ten milliseconds, spend the patience of the event loop."""


class _Fault(Exception):
    """The scanner stops here."""


def syntax_error(data: bytes) -> str:
    """Return Go's error about a text that is no JSON; empty if there is none or it is long."""
    return _error(_Scanner(data[: _MOST + 1].decode(errors="replace")))


def older_syntax_error(data: bytes) -> str:
    """Return the error of Go's older scanner, which takes bytes for characters."""
    return _error(_OlderScanner(data[: _MOST + 1].decode("latin-1")))


def _error(scanner: "_Scanner") -> str:
    if scanner.length > _MOST:
        return ""
    try:
        scanner.scan()
    except _Fault as fault:
        return str(fault)
    return ""


class _Scanner:
    """Reads one JSON value, with a stack of the lists and objects that are open."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    @property
    def length(self) -> int:
        return len(self._text)

    def scan(self) -> None:
        stack: list[str] = []
        self._skip()
        while True:
            patience.spend(_COST)
            if self._opened(stack):
                continue
            while self._closes(stack):
                pass
            if not stack:
                break
        if self._at < len(self._text):
            raise self._unexpected("after top-level value")

    def _opened(self, stack: list[str]) -> bool:
        """Read the beginning of a value; whether it opened a list or object that is not empty."""
        char = self._next()
        if char == "{":
            self._skip()
            stack.append("{")
            if self._peek() == "}":
                return False
            self._key()
            return True
        if char == "[":
            self._skip()
            stack.append("[")
            return self._peek() != "]"
        self._scalar(char)
        self._skip()
        return False

    def _closes(self, stack: list[str]) -> bool:
        """Read what follows a value; whether that ended the list or object around it."""
        if not stack:
            return False
        inside = stack[-1]
        where = "after object key:value pair" if inside == "{" else "after array element"
        char = self._next()
        if char == ("}" if inside == "{" else "]"):
            stack.pop()
            self._skip()
            return True
        if char != ",":
            self._at -= 1
            raise self._unexpected(where)
        self._skip()
        if inside == "{":
            self._key()
        return False

    def _key(self) -> None:
        self._expect('"', "looking for beginning of object key string")
        self._string()
        self._skip()
        self._expect(":", "after object key")
        self._skip()

    def _scalar(self, char: str) -> None:
        if char == '"':
            self._string()
        elif char in _LITERALS:
            word = _LITERALS[char]
            for expected in word[1:]:
                self._expect(expected, f"in literal {word} (expecting {_quoted(expected)})")
        elif char == "-" or char in _DIGITS:
            self._number(char)
        else:
            self._at -= 1
            raise self._unexpected("looking for beginning of value")

    def _string(self) -> None:
        self._pass(_WELL_FORMED)
        while (char := self._next()) != '"':
            if char == "\\":
                self._escape()
            elif char < " ":
                raise self._control_character()

    def _escape(self) -> None:
        start = self._at - 1
        char = self._next()
        if char == "u":
            for _ in range(4):
                if self._next() not in _HEX:
                    raise self._wrong_escape(start)
        elif char not in _ESCAPES:
            raise self._wrong_escape(start)

    def _control_character(self) -> _Fault:
        self._at -= 1
        return self._unexpected("in string")

    def _wrong_escape(self, start: int) -> _Fault:
        return _Fault(f"invalid escape sequence `{self._text[start : self._at]}` in string")

    def _number(self, char: str) -> None:
        if char == "-":
            char = self._digit("in numeric literal")
        if char != "0":
            self._digits()
        if self._peek() == ".":
            self._at += 1
            self._digit("after decimal point in numeric literal")
            self._digits()
        if self._peek() in ("e", "E"):
            self._at += 1
            if self._peek() in ("+", "-"):
                self._at += 1
            self._digit("in exponent of numeric literal")
            self._digits()

    def _digit(self, where: str) -> str:
        char = self._next()
        if char not in _DIGITS:
            self._at -= 1
            raise self._unexpected(where)
        return char

    def _digits(self) -> None:
        self._pass(_MANY_DIGITS)

    def _expect(self, expected: str, where: str) -> None:
        if self._next() != expected:
            self._at -= 1
            raise self._unexpected(where)

    def _peek(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _next(self) -> str:
        char = self._peek()
        if not char:
            raise _Fault(_END)
        self._at += 1
        return char

    def _skip(self) -> None:
        self._pass(_BLANKS)

    def _pass(self, well_formed: re.Pattern[str]) -> None:
        found = well_formed.match(self._text, self._at)
        assert found is not None
        self._at = found.end()

    def _unexpected(self, where: str) -> _Fault:
        return _Fault(f"invalid character {_quoted(self._peek())} {where}")


class _OlderScanner(_Scanner):
    """The scanner with other words for faults in strings."""

    def _control_character(self) -> _Fault:
        self._at -= 1
        return self._unexpected("in string literal")

    def _wrong_escape(self, start: int) -> _Fault:
        self._at -= 1
        is_unicode = self._text[start : start + 2] == "\\u"
        escape = "\\u hexadecimal character escape" if is_unicode else "string escape code"
        return self._unexpected(f"in {escape}")


_NAMED: Final = {"'": r"'\''", '"': "'\"'", "\n": r"'\n'", "\r": r"'\r'", "\t": r"'\t'"}


def _quoted(char: str) -> str:
    """Return a character as Go quotes the first byte that it does not expect."""
    if char in _NAMED:
        return _NAMED[char]
    if char < " " or char == "\x7f":
        return f"'\\x{ord(char):02x}'"
    return f"'{char}'"
