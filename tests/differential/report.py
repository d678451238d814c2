"""Reports of a comparison: figures by kind as a page, and differences by cause as text."""

import json
from collections import Counter
from collections.abc import Iterator

from tests.differential.cases import Request
from tests.differential.comparison import Figures
from tests.differential.differences import Outcome

_COLUMNS = (
    Outcome.IDENTICAL,
    Outcome.ORDER,
    Outcome.WARNINGS,
    Outcome.WORDING,
    Outcome.OBJECT,
    Outcome.REASON,
)

_HEAD = """\
# Compatibility

`python -m tests.differential` sends the same requests to a kube-apiserver and to kedge and compares
the answers: code, reason, message, details, warnings and the whole object. Values that differ by
chance (uids, times, resourceVersions, allocated addresses) are left out. The requests change one
field of a valid object at a time, to values that fit and values that do not, with create, update,
the four kinds of patch and the status subresource. Sequences of requests follow objects from create
to delete, list, page, watch and delete collections. Walks take random steps with an object and look
at it after each: writes with options of all kinds, bodies in JSON and YAML, responses in all forms,
subresources, paths and methods that do not exist. This page is generated.

"""


def page(figures: Figures, versions: str) -> str:
    """Return the figures as Markdown."""
    total = figures.total
    rows = [("all", total), *sorted(figures.by_kind.items())]
    head = "| kind | answers | " + " | ".join(each.value for each in _COLUMNS) + " |"
    lines = [head, "|---" * (len(_COLUMNS) + 2) + "|", *(_row(name, row) for name, row in rows)]
    same, all_but_order = _share(total, _COLUMNS[:5]), _share(total, _COLUMNS[:2])
    summary = (
        f"{versions}: {total.total():,} answers. {same} are identical in code and reason, "
        f"{all_but_order} in everything but the order of causes. {_failures(figures)}\n\n"
    )
    return _HEAD + summary + _legend() + "\n".join(lines) + "\n"


def _failures(figures: Figures) -> str:
    errors = sum(number for each, number in figures.failures.items() if each.startswith("5"))
    return (
        f"{len(figures.destructive)} writes changed or deleted an object of kedge that "
        f"kube-apiserver left as it was. {errors} answers of kedge have a code of 5xx where those "
        "of kube-apiserver have none."
    )


def _legend() -> str:
    return (
        "| column | the answers differ in |\n|---|---|\n"
        "| order of causes | the order of the errors of one object |\n"
        "| warnings | the `Warning` headers |\n"
        "| wording | the message or the details of a refusal |\n"
        "| object | the object |\n"
        "| code or reason | the status code or the reason |\n\n"
    )


def _row(name: str, row: Counter[Outcome]) -> str:
    cells = [f"{row.total():,}", *(f"{row[each]:,}" for each in _COLUMNS)]
    return f"| {name} | " + " | ".join(cells) + " |"


def _share(row: Counter[Outcome], outcomes: tuple[Outcome, ...]) -> str:
    return f"{100 * sum(row[each] for each in outcomes) / max(row.total(), 1):.2f} %"


def causes(figures: Figures) -> Iterator[str]:
    """Yield the differences, the most frequent cause first, with examples."""
    for (outcome, shape), number in figures.by_cause.most_common():
        examples = figures.examples[outcome, shape]
        kinds = sorted({each.case.kind for each in examples})
        yield f"## {number} {outcome.value}: {shape}  [{', '.join(kinds)}]"
        for each in examples:
            yield f"   {each.case.action} {each.case.field}: {_request(each.request)}"
            yield f"     reference: {each.reference.code} {_short(each.reference.document)}"
            yield f"     candidate: {each.candidate.code} {_short(each.candidate.document)}"
            if outcome is Outcome.WARNINGS:
                yield f"     {each.reference.warnings} | {each.candidate.warnings}"
    if figures.destructive:
        yield f"## {len(figures.destructive)} destructive"
    for write, look in figures.destructive:
        yield f"   {write.case.kind} {_request(write.request)} {write.request.content_type}"
        yield f"     {write.reference.code} {_short(write.reference.document)[:2000]}"
        yield f"     {write.candidate.code} {_short(write.candidate.document)[:2000]}"
        yield f"     look: {look.reference.code} {look.candidate.code}"
    for failure, number in figures.failures.most_common():
        yield f"## {number} failures: {failure}"


def _request(request: Request) -> str:
    body = request.body if isinstance(request.body, str) else json.dumps(request.body)
    return f"{request.method} {request.path}?{request.query} {body[:3000]}"


def _short(document: object) -> str:
    if isinstance(document, dict) and document.get("kind") == "Status":
        document = {key: document.get(key) for key in ("reason", "message", "details")}
    return json.dumps(document)[:60000]
