"""Checks of literals: durations, times, patterns, format clauses, and lists of mixed types."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from kedge.machinery import patterns
from kedge.machinery.cel.errors import CelError, CelIssues
from kedge.machinery.cel.libraries.text_format import parse_clause
from kedge.machinery.cel.syntax import CallNode, Constant, ListNode, MapNode, Node, children
from kedge.machinery.cel.types import CelType, same
from kedge.machinery.cel.values import (
    CelDuration,
    Timestamp,
    TypeValue,
    Uint,
    parse_duration,
    parse_timestamp,
)


def check_literals(node: Node, issues: CelIssues) -> None:
    """Report literals that no evaluation could use."""
    waiting: list[tuple[Node, bool]] = [(node, False)]
    while waiting:
        each, mixed = waiting.pop()
        if isinstance(each, CallNode):
            _call(each, issues)
        elif isinstance(each, ListNode) and not mixed:
            _alike(each.elements, each.optional, issues)
        elif isinstance(each, MapNode) and not mixed:
            _alike([entry.key for entry in each.entries], frozenset(), issues)
            optional = frozenset(i for i, entry in enumerate(each.entries) if entry.optional)
            _alike([entry.value for entry in each.entries], optional, issues)
        formats = isinstance(each, CallNode) and each.function == "format"
        waiting.extend((child, mixed or formats) for child in children(each))


def _alike(nodes: list[Node], optional: frozenset[int], issues: CelIssues) -> None:
    first: CelType | None = None
    for i, node in enumerate(nodes):
        type = node.type
        if i in optional and type.kind == "optional":
            type = type.parameters[0]
        if type.kind == "error":
            continue
        if first is None:
            first = type
        elif not same(first, type) and not _open(first, type):
            issues.add(node.at, f"expected type '{first}' but found '{type}'")
            return


def _open(one: CelType, other: CelType) -> bool:
    """Tell whether two containers differ only in elements that are not known, as of `[]`."""
    if one.kind != other.kind or not one.parameters:
        return False
    return all(
        same(a, b) or a.kind == "dyn" or b.kind == "dyn"
        for a, b in zip(one.parameters, other.parameters, strict=True)
    )


def _call(node: CallNode, issues: CelIssues) -> None:
    check = _CHECKED.get(node.function)
    if check is not None and node.arguments:
        argument = node.arguments[-1]
        if isinstance(argument, Constant) and isinstance(argument.value, str):
            try:
                check(argument.value)
            except (ValueError, CelError):
                issues.add(argument.at, f"invalid {node.function} argument")
    if node.function == "format" and isinstance(node.target, Constant):
        _format(node, node.target, issues)


def _duration(text: str) -> None:
    parse_duration(text)


def _timestamp(text: str) -> None:
    parse_timestamp(text)


def _pattern(text: str) -> None:
    patterns.compile_pattern(text)


_CHECKED: Final = {"duration": _duration, "timestamp": _timestamp, "matches": _pattern}

_SAMPLES: Final[dict[str, Any]] = {
    "bool": True,
    "int": 1,
    "uint": Uint(1),
    "double": 1.0,
    "string": "a",
    "bytes": b"a",
    "null": None,
    "list": [1],
    "map": {"a": 1},
    "timestamp": Timestamp(0),
    "duration": CelDuration(0),
    "type": TypeValue("int"),
}


_UNPRINTED: Final = ("object", "opaque", "optional")
"""Kinds of types that no clause prints."""


class _Unprinted:
    """A value of a type that no clause prints."""

    def __init__(self, cel_type: str) -> None:
        self.cel_type = cel_type


def _format(node: CallNode, target: Constant, issues: CelIssues) -> None:
    """Try each clause of a literal with a value of its argument's type."""
    template = target.value
    listed = node.arguments[0] if node.arguments else None
    if not isinstance(listed, ListNode) or not isinstance(template, str):
        return
    at = used = 0
    while (mark := template.find("%", at)) >= 0:
        if template[mark + 1 : mark + 2] == "%":
            at = mark + 2
            continue
        try:
            clause, at = parse_clause(template, mark + 1)
            if used >= len(listed.elements):
                raise CelError(f"index {used} out of range")
        except CelError as error:
            given = listed.elements[used].at if used < len(listed.elements) else node.at
            issues.add(given, str(error))
            return
        for part in _printed_parts(listed.elements[used], is_text=template[at - 1] == "s"):
            if (why := _refusal(clause, part.type)) is not None:
                issues.add(part.at, f"error during formatting: {why}")
                return
        used += 1


def _printed_parts(node: Node, *, is_text: bool) -> Iterator[Node]:
    """Yield the argument of a clause, and the members of a literal list or map that `%s` prints."""
    yield node
    if is_text and isinstance(node, ListNode | MapNode):
        for inner in children(node):
            yield from _printed_parts(inner, is_text=True)


def _refusal(clause: Callable[[Any], str], given: CelType) -> str | None:
    """Return why a clause does not print values of a type."""
    if given.kind in _SAMPLES:
        sample = _SAMPLES[given.kind]
    elif given.kind in _UNPRINTED:
        sample = _Unprinted(given.name)
    else:
        return None
    try:
        clause(sample)
    except CelError as error:
        return str(error)
    return None
