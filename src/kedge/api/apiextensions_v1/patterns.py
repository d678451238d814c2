"""Regular expressions of schemas: written for Go's engine, run by Python's.

What Go refuses (lookarounds, back references, more than 1000 repeats) is refused here too, so that
a schema which kedge takes is one that every cluster takes.
"""

import re
import sys
import unicodedata
from functools import lru_cache

_FLAGS = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]+))?([:)])")
_NAMED = re.compile(r"\(\?P?<([A-Za-z_0-9]+)>")
_GROUP = re.compile(r"\(\?(?:[=!>#]|<[=!]|P[=>]|\()")
_PROPERTY = re.compile(r"\\([pP])(?:\{(\^?)([A-Za-z]+)\}|([A-Z]))")
_CODE = re.compile(r"\\x\{([0-9A-Fa-f]{1,6})\}")
_REPEAT = re.compile(r"\{([0-9]+)(?:,([0-9]*))?\}")
_POSIX = re.compile(r"\[:([a-z]+):\]")
_POSSESSIVE = re.compile(r"[*+?}][+*]")
_GO_ESCAPES = frozenset("aAbBdDfnrQEpPsStvwWxz") | frozenset("01234567")
_MOST_REPEATS = 1000
_POSIX_SETS = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7f",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": r"0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """The expression, to be searched for; ValueError if Go would not take it."""
    try:
        return re.compile(_Translation(pattern).text(), re.ASCII)
    except re.error as error:
        raise ValueError(f"error parsing regexp: {error.msg}: `{pattern}`") from None


class _Translation:
    """One walk over a pattern, from left to right."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.out: list[str] = []
        # Go's `(?i)` lasts to the end of the group it stands in; Python wants a group of its own
        # for that. Per open group: the flags so opened, to be closed with it.
        self.opened: list[list[str]] = [[]]
        self.multiline = any("m" in flags for flags, _, _ in _FLAGS.findall(pattern))

    def text(self) -> str:
        while self.at < len(self.pattern):
            self.step(self.pattern[self.at])
        self.out.append(")" * len(self.opened[-1]))
        return "".join(self.out)

    def step(self, char: str) -> None:
        match char:
            case "\\":
                self.escape(in_set=False)
            case "[":
                self.set()
            case "(":
                self.open_group()
            case ")":
                # An unmatched one is for the compiler to complain about.
                closing = self.opened.pop() if len(self.opened) > 1 else []
                self.put(")" * (len(closing) + 1))
            case "|":
                flags = self.opened[-1]
                self.put(")" * len(flags) + "|" + "".join(flags))
            case "$":
                self.put("$" if self.multiline else r"\Z")
            case _:
                self.plain(char)

    def put(self, text: str, taken: int = 1) -> None:
        self.out.append(text)
        self.at += taken

    def plain(self, char: str) -> None:
        if repeat := _REPEAT.match(self.pattern, self.at):
            if any(int(bound) > _MOST_REPEATS for bound in repeat.groups() if bound):
                raise _wrong("invalid repeat count", repeat[0])
            self.put(repeat[0][:-1], len(repeat[0]) - 1)
            char = "}"
        if double := _POSSESSIVE.match(self.pattern, self.at):
            raise _wrong("invalid nested repetition operator", double[0])
        self.put(char)

    def open_group(self) -> None:
        if found := _GROUP.match(self.pattern, self.at):
            raise _wrong("invalid or unsupported Perl syntax", found[0])
        if named := _NAMED.match(self.pattern, self.at):
            self.opened.append([])
            self.put(f"(?P<{named[1]}>", len(named[0]))
        elif flags := _FLAGS.match(self.pattern, self.at):
            self.flags(flags)
        else:
            self.opened.append([])
            self.put("(")

    def flags(self, found: re.Match[str]) -> None:
        on, off, end = found.groups()
        if not set(on + (off or "")) <= set("ims"):
            raise _wrong("invalid or unsupported Perl syntax", found[0])
        group = f"(?{on}{f'-{off}' if off else ''}:"
        if end == ":":
            self.opened.append([])
        elif on or off:
            self.opened[-1].append(group)
        self.put(group if on or off or end == ":" else "", len(found[0]))

    def escape(self, *, in_set: bool) -> None:
        if found := _PROPERTY.match(self.pattern, self.at):
            self.put(_property_set(found, in_set=in_set), len(found[0]))
        elif code := _CODE.match(self.pattern, self.at):
            self.put(f"\\U{int(code[1], 16):08x}", len(code[0]))
        elif self.pattern.startswith(r"\Q", self.at):
            end = self.pattern.find(r"\E", self.at)
            quoted = self.pattern[self.at + 2 : end if end >= 0 else None]
            self.put(re.escape(quoted), len(quoted) + (4 if end >= 0 else 2))
        elif self.pattern.startswith(r"\z", self.at):
            self.put(r"\Z", 2)
        else:
            letter = self.pattern[self.at + 1 : self.at + 2]
            known = letter in _GO_ESCAPES or not letter.isalnum()
            if not letter or not known or (letter.isdigit() and not self._is_octal()):
                raise _wrong("invalid escape sequence", "\\" + letter)
            self.put("\\" + letter, 2)

    def _is_octal(self) -> bool:
        return re.match(r"\\(0|[1-7][0-7])", self.pattern[self.at :]) is not None

    def set(self) -> None:
        negated = self.pattern.startswith("[^", self.at)
        self.put("[^" if negated else "[", 2 if negated else 1)
        if self.pattern.startswith("]", self.at):
            self.put(r"\]")
        while self.at < len(self.pattern) and self.pattern[self.at] != "]":
            self.set_member(self.pattern[self.at])
        if self.at >= len(self.pattern):
            raise _wrong("missing closing ]", self.pattern)
        self.put("]")

    def set_member(self, char: str) -> None:
        posix = _POSIX.match(self.pattern, self.at)
        if posix and posix[1] in _POSIX_SETS:
            self.put(_POSIX_SETS[posix[1]], len(posix[0]))
        elif char == "\\":
            self.escape(in_set=True)
        else:
            # These mean something to Python's sets, or will, and nothing to Go's.
            self.put(f"\\{char}" if char in "[&~|" else char)


def _wrong(what: str, where: str) -> ValueError:
    return ValueError(f"error parsing regexp: {what}: `{where}`")


def _property_set(found: re.Match[str], *, in_set: bool) -> str:
    """The characters of a Unicode category, spelt out: Python's engine has no name for them."""
    name = found[3] or found[4]
    negated = (found[1] == "P") != bool(found[2])
    members = _category(name)
    if not members or (negated and in_set):
        raise _wrong("invalid character class range", found[0])
    return members if in_set else f"[{'^' if negated else ''}{members}]"


@lru_cache
def _category(name: str) -> str:
    ranges: list[list[int]] = []
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code)).startswith(name):
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)
