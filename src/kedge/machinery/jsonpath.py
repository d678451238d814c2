"""The JSONPath of printer columns, scale paths and kubectl, compiled once for all documents."""

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from kedge.machinery.short_cache import short_cache

Step = Callable[[Iterable[object]], Iterator[object]]


class JSONPath:
    """A compiled path; see `parse_path`."""

    __slots__ = ("_steps", "text")

    def __init__(self, text: str, steps: Iterable[Step]) -> None:
        self.text = text
        self._steps = tuple(steps)

    def find(self, document: object) -> list[object]:
        """All values the path leads to, in order; missing ones are left out."""
        values: Iterable[object] = (document,)
        for step in self._steps:
            values = step(values)
        return list(values)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"JSONPath({self.text!r})"


@short_cache(1024, longest=1024)
def parse_path(text: str) -> JSONPath:
    """Parse a path, with or without braces; raises ValueError if it is malformed.

    Supported are `.a.b`, `.*`, `['k']`, `[0]`, `[-1]`, `[1:3]`, `[*]`, `[0,2]` and the filters
    `[?(@.a=="b")]` and `[?(@.a)]`. A dot within a key needs a backslash, in quotes as well.
    """
    return JSONPath(text, _PathParser(_without_braces(text)).steps())


def _without_braces(text: str) -> str:
    if not text.startswith("{"):
        return text
    if not text.endswith("}"):
        raise ValueError("unclosed action")
    return text[1:-1]


_FIELD: Final = re.compile(r"(?:\\.|[^\\\s.,\[\]$@{}])*")
_BRACKET: Final = re.compile(r"\[([^\]\n]*)\]")
_FILTER: Final = re.compile(r"""\[\?\(((?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^"')])*)\)\]""")
_COMPARISON: Final = re.compile(r"([^!<>=]+)([!<>=]+)(.+)", re.DOTALL)
_SLICE: Final = re.compile(r"(-?[0-9]*):(-?[0-9]*)(?::([0-9]*))?")
_INDEX: Final = re.compile(r"-?[0-9]+")


class _PathParser:
    """Reads one path from left to right, a step at a time."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def steps(self) -> Iterator[Step]:
        if self.text[:1] in ("$", "@"):
            self.position = 1
        while self.position < len(self.text):
            yield from self.step()

    def step(self) -> Iterable[Step]:
        rest = self.text[self.position :]
        if rest.startswith(".."):
            raise ValueError("recursive descent is not supported")
        if rest.startswith("[?("):
            return [_filter(self.matched(_FILTER, "unterminated filter")[1])]
        if rest.startswith("["):
            return _bracket(self.matched(_BRACKET, "unterminated array")[1])
        if rest.startswith("."):
            self.position += 1
            return [_named(self.matched(_FIELD, "unclosed action")[0])]
        raise ValueError(f"unrecognized character in action: U+{ord(rest[0]):04X} '{rest[0]}'")

    def matched(self, pattern: re.Pattern[str], complaint: str) -> re.Match[str]:
        found = pattern.match(self.text, self.position)
        if found is None:
            raise ValueError(complaint)
        self.position = found.end()
        return found


def _bracket(inside: str) -> list[Step]:
    if "," in inside:
        return [_union([_bracket(part.strip(" ")) for part in inside.split(",")])]
    if inside == "*":
        return [_every_item]
    if len(inside) >= 2 and inside[0] == inside[-1] == "'":
        # Upstream reads the quoted key as if it stood behind a dot: 'a.b' is two keys.
        return list(_PathParser(f".{inside[1:-1]}").steps())
    if _INDEX.fullmatch(inside):
        return [_indexed(int(inside))]
    if bounds := _SLICE.fullmatch(inside):
        start, stop, stride = (int(bound) if bound else None for bound in bounds.groups())
        if stride == 0:
            raise ValueError("step must be > 0")
        return [_sliced(slice(start, stop, stride))]
    raise ValueError(f"invalid array index {inside}")


def _named(written: str) -> Step:
    if written == "*":
        return _every_value
    name = written.replace("\\", "")

    def step(values: Iterable[object]) -> Iterator[object]:
        for value in values:
            if isinstance(value, Mapping) and name in value:
                yield value[name]

    return step


def _indexed(index: int) -> Step:
    def step(values: Iterable[object]) -> Iterator[object]:
        for value in values:
            if isinstance(value, list) and -len(value) <= index < len(value):
                yield value[index]

    return step


def _sliced(bounds: slice) -> Step:
    def step(values: Iterable[object]) -> Iterator[object]:
        for value in values:
            if isinstance(value, list):
                yield from value[bounds]

    return step


def _every_item(values: Iterable[object]) -> Iterator[object]:
    for value in values:
        if isinstance(value, list):
            yield from value


def _every_value(values: Iterable[object]) -> Iterator[object]:
    for value in values:
        if isinstance(value, Mapping):
            yield from value.values()
        elif isinstance(value, list):
            yield from value


def _union(branches: list[list[Step]]) -> Step:
    def step(values: Iterable[object]) -> Iterator[object]:
        starts = list(values)
        for branch in branches:
            found: Iterable[object] = starts
            for each in branch:
                found = each(found)
            yield from found

    return step


Comparison = Callable[[Any, Any], bool]

_COMPARISONS: Final[Mapping[str, Comparison]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _filter(condition: str) -> Step:
    comparison = _COMPARISON.fullmatch(condition)
    if comparison is None:
        return _kept(_path_operand(condition.strip()), None, None)
    left, sign, right = comparison.groups()
    if sign not in _COMPARISONS:
        raise ValueError(f"unrecognized filter operator {sign}")
    return _kept(_operand(left.strip()), _COMPARISONS[sign], _operand(right.strip()))


Operand = Callable[[object], list[object]]


def _kept(left: Operand, compare: Comparison | None, right: Operand | None) -> Step:
    """The items of each list for which the comparison holds or, without one, `left` exists."""

    def holds(item: object) -> bool:
        lefts = left(item)
        if compare is None or right is None:
            return bool(lefts)
        rights = right(item)
        if len(lefts) != 1 or len(rights) != 1 or not _comparable(lefts[0], rights[0]):
            return False
        return compare(lefts[0], rights[0])

    def step(values: Iterable[object]) -> Iterator[object]:
        for value in values:
            if isinstance(value, list):
                yield from filter(holds, value)

    return step


def _comparable(left: object, right: object) -> bool:
    """Upstream refuses to compare a number with a text or with a truth value."""
    return _sort_of(left) is _sort_of(right) is not None


def _sort_of(value: object) -> type | None:
    for sort in (str, bool, int):
        if isinstance(value, sort):
            return sort
    return int if isinstance(value, float) else None


def _operand(text: str) -> Operand:
    """A quoted text, a number, a truth value or a path from the item in question."""
    if text[:1] in ("'", '"'):
        literal: object = _unquoted(text)
    elif text in ("true", "false"):
        literal = text == "true"
    elif re.fullmatch(r"[+-]?[0-9]+", text):
        literal = int(text)
    elif re.fullmatch(r"[+-]?[0-9]*\.[0-9]+", text):
        literal = float(text)
    else:
        return _path_operand(text)
    return lambda item: [literal]


def _path_operand(text: str) -> Operand:
    return JSONPath(text, _PathParser(text).steps()).find


def _unquoted(text: str) -> str:
    if len(text) < 2 or text[0] != text[-1]:
        raise ValueError("unterminated quoted string")
    return re.sub(r"\\(.)", r"\1", text[1:-1])
