"""The templates of `-o jsonpath=...`: text, paths in braces, and `{range ...} ... {end}`."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from kedge.cli.failure import Failure
from kedge.machinery.jsonpath import JSONPath, parse_path

_ACTION: Final = re.compile(
    r"""\{((?:[^{}"']|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')*)\}""", re.DOTALL
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r"}


class _Range(NamedTuple):
    """A part that is repeated for everything a path leads to."""

    path: JSONPath
    body: "Sequence[_Part]"


_Part = str | JSONPath | _Range


class OutputTemplate:
    """A template, compiled once for all documents."""

    def __init__(self, text: str) -> None:
        try:
            tokens = list(_tokens(text))
            self._parts = _parts(tokens, within=False)
        except ValueError as error:
            raise Failure(f"error parsing jsonpath {text}, {error}") from error

    def fill(self, document: object) -> str:
        """The text that the template makes of a document; what is missing makes none."""
        return "".join(_filled(self._parts, document))


def _tokens(text: str) -> Iterator[str]:
    """Literal texts, and actions with their opening brace."""
    position = 0
    for action in _ACTION.finditer(text):
        yield text[position : action.start()]
        yield "{" + action[1].strip()
        position = action.end()
    rest = text[position:]
    if "{" in rest:
        raise ValueError("unclosed action")
    yield rest


def _parts(tokens: list[str], *, within: bool) -> list[_Part]:
    """The parts up to the end or, within a range, to its `end`; takes the tokens away."""
    parts: list[_Part] = []
    while tokens:
        token = tokens.pop(0)
        if not token.startswith("{"):
            parts.append(token)
        elif token == "{end":
            if not within:
                raise ValueError("not in range, nothing to end")
            return parts
        elif token.startswith("{range "):
            path = parse_path(token.removeprefix("{range ").strip())
            parts.append(_Range(path, _parts(tokens, within=True)))
        elif token[1:2] in ('"', "'"):
            parts.append(_unquoted(token[2:-1]))
        else:
            parts.append(parse_path(token[1:]))
    if within:
        raise ValueError("unexpected end of range")
    return parts


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text)


def _filled(parts: Sequence[_Part], document: object) -> Iterator[str]:
    for part in parts:
        if isinstance(part, str):
            yield part
        elif isinstance(part, JSONPath):
            yield " ".join(shown(value) for value in part.find(document))
        else:
            for value in part.path.find(document):
                yield from _filled(part.body, value)


def shown(value: object) -> str:
    """A value as text: what is composite, or none, as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, dict | list):
        return msgspec.json.encode(value).decode()
    return json.dumps(value)
