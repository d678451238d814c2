"""Difference: how two answers to one request differ, and the shape that groups it with others."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from tests.differential.cases import Answer

_INDEX: Final = re.compile(r"\[[^\]]*\]")
_POD: Final = re.compile(
    r"\bspec\.(?:jobTemplate\.spec\.)?template\.(?=spec|metadata)|\btemplate\.(?=spec)"
)
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_NUMBER: Final = re.compile(r"-?\d[\d.e+]*")
_MOST_PATHS: Final = 4


class Outcome(Enum):
    """How far two answers agree."""

    IDENTICAL = "identical"
    ORDER = "order of causes"
    WARNINGS = "warnings"
    WORDING = "wording"
    OBJECT = "object"
    REASON = "code or reason"


@dataclass(frozen=True)
class Difference:
    """The outcome of one comparison. `shape` is the same for differences of one cause."""

    outcome: Outcome
    shape: str = ""


def difference(reference: Answer, candidate: Answer) -> Difference:
    """Compare the normal forms of two answers."""
    one, two = reference.document, candidate.document
    if (reference.code, _reason(one)) != (candidate.code, _reason(two)):
        said = f"{_outline(reference)}  |  {_outline(candidate)}"
        return Difference(Outcome.REASON, said)
    if reference.code >= 400:
        return _of_refusals(one, two)
    if one != two:
        paths = list(_paths(one, two))
        return Difference(Outcome.OBJECT, "; ".join(sorted(set(paths))[:_MOST_PATHS]))
    if reference.warnings != candidate.warnings:
        return Difference(Outcome.WARNINGS, _missing(reference.warnings, candidate.warnings))
    return Difference(Outcome.IDENTICAL)


def _reason(document: Any) -> Any:
    is_status = isinstance(document, dict) and document.get("kind") == "Status"
    return document.get("reason") if is_status else None


def _of_refusals(one: Any, two: Any) -> Difference:
    if one == two:
        return Difference(Outcome.IDENTICAL)
    if not isinstance(one, dict) or not isinstance(two, dict):
        return Difference(Outcome.WORDING, f"{shape(str(one))}  |  {shape(str(two))}")
    said, other = _causes(one), _causes(two)
    if said and sorted(said) == sorted(other) and _details(one) == _details(two):
        return Difference(Outcome.ORDER, shape("; ".join(said)))
    if said != other and (said or other):
        return Difference(Outcome.WORDING, _missing(said, other))
    if one.get("message") != two.get("message"):
        texts = (str(each.get("message")) for each in (one, two))
        return Difference(Outcome.WORDING, "  |  ".join(map(shape, texts)))
    return Difference(Outcome.WORDING, "details: " + "; ".join(sorted(set(_paths(one, two)))))


def _causes(status: dict[str, Any]) -> list[str]:
    causes = (status.get("details") or {}).get("causes") or ()
    return [
        f"{each.get('field', '')}: {each.get('message')} ({each.get('reason')})" for each in causes
    ]


def _details(status: dict[str, Any]) -> Any:
    return {key: each for key, each in (status.get("details") or {}).items() if key != "causes"}


def _missing(one: Sequence[str], two: Sequence[str]) -> str:
    lost = [f"- {shape(each)}" for each in one if each not in two]
    more = [f"+ {shape(each)}" for each in two if each not in one]
    return "  ".join([*dict.fromkeys(lost), *dict.fromkeys(more)][:_MOST_PATHS])


def _outline(answer: Answer) -> str:
    document = answer.document
    if isinstance(document, dict) and document.get("kind") == "Status" and answer.code >= 400:
        causes = _causes(document)
        text = shape("; ".join(causes[:2]) or str(document.get("message")))
        return f"{answer.code} {document.get('reason')} {text}"
    return f"{answer.code}" if isinstance(document, dict) else f"{answer.code} {document!r}"[:80]


def shape(text: str) -> str:
    """Return a message without the values in it; indexes and the way to a pod template go too."""
    text = _POD.sub("", _INDEX.sub("[]", text))
    return _NUMBER.sub("N", _QUOTED.sub('"…"', text))[:300]


def _paths(one: Any, two: Any, path: str = "") -> Iterator[str]:
    """Yield the folded paths at which two documents differ, with the way in which they do."""
    if isinstance(one, dict) and isinstance(two, dict):
        for key in sorted({*one, *two}):
            below = f"{path}.{key}" if path else key
            if key not in two:
                yield shape(f"-{below}")
            elif key not in one:
                yield shape(f"+{below}")
            else:
                yield from _paths(one[key], two[key], below)
    elif isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        for left, right in zip(one, two, strict=True):
            yield from _paths(left, right, f"{path}[]")
    elif one != two or type(one) is not type(two):
        yield shape(path)
