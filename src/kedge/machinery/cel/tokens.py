"""The lexer: from the text of an expression to tokens."""

import re
from typing import Any, Final, NamedTuple

from kedge.machinery.cel.errors import CelIssues
from kedge.machinery.cel.values import Uint

_INT_MAX: Final = (1 << 63) - 1
_UINT_MAX: Final = (1 << 64) - 1

RESERVED: Final = frozenset(
    {
        "as", "break", "const", "continue", "else", "false", "for", "function", "if", "import",
        "in", "let", "loop", "namespace", "null", "package", "return", "true", "var", "void",
        "while",
    }
)  # fmt: skip
"""Words that may not name a variable; some of them may name a field."""

_TOKEN: Final = re.compile(
    r"""
    (?P<blank>[\t\n\f\r ]+|//[^\n]*)
  | (?P<string>(?P<prefix>[bB][rR]?|[rR][bB]?)?(?P<quote>\"{3}|'{3}|["']))
  | (?P<number>
        \d+\.\d+(?:[eE][+-]?\d+)? | \d+[eE][+-]?\d+ | \.\d+(?:[eE][+-]?\d+)?
      | 0x[0-9a-fA-F]+[uU]? | \d+[uU]?
    )
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<mark>==|!=|<=|>=|&&|\|\||[-<>!+*/%?:.,()\[\]{}])
    """,
    re.VERBOSE | re.ASCII,
)
_ESCAPES: Final = {
    "a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11,
    "\\": 92, "?": 63, '"': 34, "'": 39, "`": 96,
}  # fmt: skip


class CelToken(NamedTuple):
    """A token: `kind` is its text for marks and keywords, else WORD, NUMBER, STRING, or END."""

    kind: str
    at: int
    text: str
    value: Any = None


def tokenize(text: str, issues: CelIssues) -> list[CelToken]:
    """Return the tokens of an expression; errors are added to the issues."""
    found: list[CelToken] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            # Upstream's lexer reads one character more before it refuses half of `==` or `&&`.
            shown = text[at : at + (2 if text[at] in "=&|" else 1)]
            issues.add(at, f"Syntax error: token recognition error at: '{shown}'")
            at += len(shown)
            continue
        kind = match.lastgroup
        if kind == "blank":
            at = match.end()
        elif match["string"] is not None:
            at = _string(text, match, found, issues)
        elif kind == "number":
            found.append(_number(match[0], at, issues))
            at = match.end()
        else:
            word = match[0]
            keyword = kind == "mark" or word in ("true", "false", "null", "in")
            found.append(CelToken(word if keyword else "WORD", at, word))
            at = match.end()
    found.append(CelToken("END", len(text), "<EOF>"))
    return found


def _number(text: str, at: int, issues: CelIssues) -> CelToken:
    value: Any
    if text[-1] in "uU":
        digits = int(text[:-1], 0) if text.startswith("0x") else _decimal(text[:-1])
        if digits > _UINT_MAX:
            issues.add(at, "invalid uint literal")
        value = Uint(digits & _UINT_MAX)
    elif text.startswith("0x"):
        value = int(text, 16)
    elif any(c in text for c in ".eE"):
        value = float(text)
        if value in (float("inf"), float("-inf")):
            issues.add(at, "invalid double literal")
    else:
        value = _decimal(text)
    return CelToken("NUMBER", at, text, value)


def _decimal(digits: str) -> int:
    """Return the number, or one beyond every bound for a text that is too long."""
    return int(digits) if len(digits.lstrip("0")) < 30 else _UINT_MAX + 1


def _string(text: str, match: re.Match[str], found: list[CelToken], issues: CelIssues) -> int:
    quote, prefix = match["quote"], (match["prefix"] or "").lower()
    raw, is_bytes = "r" in prefix, "b" in prefix
    begin = at = match.end()
    while True:
        if at >= len(text) or (len(quote) == 1 and text[at] in "\r\n"):
            shown = text[match.start() : at]
            issues.add(match.start(), f"Syntax error: token recognition error at: '{shown}'")
            return at
        if text.startswith(quote, at):
            break
        at += 2 if text[at] == "\\" and not raw else 1
    body = text[begin:at]
    value: Any
    try:
        value = _plain(body, is_bytes) if raw or "\\" not in body else _unescaped(body, is_bytes)
    except ValueError as error:
        kind = "bytes" if is_bytes else "string"
        issues.add(match.start(), f"invalid {kind} literal: {error}" if str(error) else "invalid")
        value = b"" if is_bytes else ""
    end = at + len(quote)
    found.append(CelToken("STRING", match.start(), text[match.start() : end], value))
    return end


def _plain(body: str, is_bytes: bool) -> Any:
    return body.encode() if is_bytes else body


def _unescaped(body: str, is_bytes: bool) -> Any:
    """Return the text or bytes that a literal with escapes stands for."""
    out = bytearray()
    characters: list[str] = []

    def put(code: int, octet: bool) -> None:
        if is_bytes:
            out.extend(bytes((code,)) if octet else chr(code).encode())
        else:
            characters.append(chr(code))

    at = 0
    while at < len(body):
        if body[at] != "\\":
            put(ord(body[at]), octet=False)
            at += 1
            continue
        code, octet, at = _escape(body, at + 1)
        if is_bytes and not octet and body[at - 1] in "uU":
            raise ValueError("unable to unescape string")
        if not 0 <= code <= 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise ValueError("unable to unescape string")
        put(code, octet)
    return bytes(out) if is_bytes else "".join(characters)


def _escape(body: str, at: int) -> tuple[int, bool, int]:
    """Return the code, whether it is an octet, and where the escape ends."""
    if at >= len(body):
        raise ValueError("unable to unescape string, found '\\' as last character")
    letter = body[at]
    if letter in _ESCAPES:
        return _ESCAPES[letter], False, at + 1
    length = {"x": 2, "X": 2, "u": 4, "U": 8}.get(letter)
    if length is not None:
        digits = body[at + 1 : at + 1 + length]
        if len(digits) != length or not re.fullmatch("[0-9a-fA-F]+", digits):
            raise ValueError("unable to unescape string")
        return int(digits, 16), length == 2, at + 1 + length
    digits = body[at : at + 3]
    if not re.fullmatch("[0-3][0-7][0-7]", digits):
        raise ValueError("unable to unescape string")
    return int(digits, 8), True, at + 3
