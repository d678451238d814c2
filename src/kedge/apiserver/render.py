"""Objects as clients want them: the stored bytes, YAML, rows of a Table, or metadata only."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from kedge.api.core_v1.pod import pod
from kedge.api.model import ListMeta
from kedge.api.presentation import Age, Column
from kedge.api.protobuf.messages import MEDIA_TYPE
from kedge.api.resource import Resource
from kedge.apiserver import protobuf_answers
from kedge.apiserver.media import ACCEPTED, STREAMS, Form, ResponseForm, accepts, negotiate
from kedge.apiserver.object_lists import (
    TURN,
    address_pieces,
    joined,
    list_pieces,
    own_document,
    own_version,
    partial,
    partial_pieces,
    to_yaml,
    yaml_list_pieces,
)
from kedge.apiserver.request import Request
from kedge.apiserver.watchcache import Item
from kedge.machinery.clock import Clock
from kedge.machinery.durations import LONG_AGE, constant_age, human_age, parse_time
from kedge.machinery.errors import StatusError, bad_request, not_acceptable
from kedge.web.message import JSON, HttpRequest, Response, warning_headers

ROW_KEPT: Final = 32 << 10
"""Rows of larger objects are not kept: they may take as much memory as the objects."""
_SEARCHED_BYTES: Final = 4 << 20
"""How much of a list is searched for objects that call for a further column."""

ROWS_TOGETHER: Final = 32
"""Rows that are looked at together: at most a megabyte, of the largest objects with a kept row."""

_INCLUDES = ("None", "Metadata", "Object")


PLAIN_JSON: Final = frozenset(("", "*/*", "application/json"))
"""Accept headers of clients that get JSON, of whatever is offered."""
_JSON: Final = ResponseForm("json")


def response_form(request: Request, offered: Sequence[Form]) -> ResponseForm:
    """The form the client prefers among those on offer; 406 if there is none."""
    accept = request.http.headers.get("accept", "")
    if accept in PLAIN_JSON:
        return _JSON
    choices = negotiate(accept)
    for choice in choices:
        if choice.form in offered and (choice.form != "protobuf" or request.resource.message):
            return choice
    for choice in choices:
        if choice.form.endswith(("partial", "partial-list")):
            raise _of_other_number(request.resource, choice.form)
    raise not_acceptable(ACCEPTED)


def _of_other_number(resource: Resource[Any], form: Form) -> StatusError:
    """Return the error for the metadata of one object where there are many, or the reverse."""
    # Imported here because only errors need the table.
    from kedge.api.builtin.registered_kinds import internal_type

    one = form.endswith("partial")
    asked, is_what = ("", "a list") if one else ("List", "not a list")
    name = "unstructured.Unstructured"
    if not resource.custom:
        name = internal_type(resource.group, resource.kind)
    message = (
        f"you requested PartialObjectMetadata{asked}, but the requested object is {is_what} "
        f"(*{name}{'List' if one else ''})"
    )
    return StatusError(406, "NotAcceptable", message)


def check_accept(request: Request) -> None:
    """Refuse media types that no object is shown in. Upstream does this before it looks for the
    object, and by the names of the types first, except for custom kinds."""
    accept = request.http.headers.get("accept", "")
    if accept and not request.resource.custom and not accepts(accept, ACCEPTED):
        listed = request.subresource == "" and request.verb in ("list", "watch")
        offered = (*ACCEPTED, *(f"{each};stream=watch" for each in STREAMS)) if listed else ACCEPTED
        why = f"406: Not Acceptable\n\nAvailable representations: {', '.join(offered)}"
        raise StatusError(406, "NotAcceptable", why, details={})
    if not negotiate(accept):
        raise not_acceptable(ACCEPTED)


def offered_of(resource: Resource[Any], forms: Sequence[Form]) -> Sequence[Form]:
    """Return the forms of lists and watches of a resource: those of all, and one more for pods."""
    return (*forms, "addresses") if resource is pod.RESOURCE else forms


def check(request: Request, offered: Sequence[Form]) -> None:
    """Refuse now what could not be shown later."""
    if response_form(request, offered).form == "table":
        included(request)


ONE: Sequence[Form] = ("json", "yaml", "protobuf", "table", "partial", "protobuf-partial")
MANY: Sequence[Form] = (
    "json",
    "yaml",
    "protobuf",
    "table",
    "partial-list",
    "protobuf-partial-list",
)
WATCHED: Sequence[Form] = (
    "json",
    "protobuf",
    "table",
    "partial",
    "partial-list",
    "protobuf-partial",
    "protobuf-partial-list",
)
PLAIN: Sequence[Form] = ("json", "yaml", "protobuf")


def one(request: Request, item: Item, clock: Clock, status: int = 200) -> Response:
    """A single object."""
    choice = response_form(request, ONE)
    headers = warning_headers(request.warnings) if request.warnings else []
    match choice.form:
        case "json":
            return Response(status, own_version(request.resource, item.body), JSON, headers)
        case "yaml":
            shown = to_yaml(own_document(request.resource, item.body))
            return Response(status, shown, "application/yaml", headers)
        case "protobuf":
            return Response(
                status, protobuf_answers.one(request.resource, item), MEDIA_TYPE, headers
            )
        case "partial":
            return Response(status, partial(item, choice.version), JSON, headers)
        case "protobuf-partial":
            body = protobuf_answers.partial(item, choice.version)
            return Response(status, body, MEDIA_TYPE, headers)
        case _:
            meta = ListMeta(resourceVersion=str(item.revision))
            table = b"".join(table_pieces(request, [item], meta, clock.now(), choice.version))
            return Response(status, table, JSON, headers)


def plain(request: Request, document: dict[str, Any], status: int) -> Response:
    """A document that is not stored, such as a review."""
    headers = warning_headers(request.warnings)
    match response_form(request, PLAIN).form:
        case "yaml":
            return Response(status, to_yaml(document), "application/yaml", headers)
        case "protobuf":
            body = protobuf_answers.document(request.resource, document)
            return Response(status, body, MEDIA_TYPE, headers)
        case _:
            return Response(status, msgspec.json.encode(document), JSON, headers)


def status(http: HttpRequest, document: dict[str, Any], code: int) -> Response:
    """A Status: an error, or a success without an object."""
    choices = negotiate(http.headers.get("accept", ""))
    form = choices[0].form if choices else "json"
    if form == "yaml":
        return Response(code, to_yaml(document), "application/yaml")
    if form.startswith("protobuf"):
        return Response(code, protobuf_answers.status(document), MEDIA_TYPE)
    return Response(code, msgspec.json.encode(document))


def many(request: Request, items: Sequence[Item], meta: ListMeta, clock: Clock) -> Response:
    """A list of objects."""
    resource = request.resource
    choice = response_form(request, offered_of(resource, MANY))
    match choice.form:
        case "json":
            return Response(200, list_pieces(resource, items, meta))
        case "yaml":
            return Response(200, yaml_list_pieces(resource, items, meta), "application/yaml")
        case "protobuf":
            return Response(200, protobuf_answers.list_pieces(resource, items, meta), MEDIA_TYPE)
        case "partial-list":
            return Response(200, partial_pieces(items, meta, choice.version))
        case "protobuf-partial-list":
            pieces = protobuf_answers.partial_pieces(items, meta, choice.version)
            return Response(200, pieces, MEDIA_TYPE)
        case "addresses":
            return Response(200, address_pieces(resource, items, meta))
        case _:
            pieces = table_pieces(request, items, meta, clock.now(), choice.version)
            return Response(200, pieces)


def decodes_objects(request: Request) -> bool:
    """Whether objects are decoded to show a list: as a table, as YAML or as protobuf."""
    form = response_form(request, offered_of(request.resource, MANY)).form
    return form in ("table", "yaml", "protobuf", "protobuf-partial-list")


class TableForm(NamedTuple):
    """A table as a client asked for it."""

    resource: Resource[Any]
    columns: Sequence[Column]
    include: str
    """How much of each object a row carries."""
    version: str
    row_form: tuple[object, ...]
    """All that the text of a row depends on, besides the object and the time. Rows share it."""


def table_form(
    resource: Resource[Any], columns: Sequence[Column], include: str, version: str
) -> TableForm:
    """Return the form of a table."""
    asked = resource, len(columns), include, version
    return TableForm(resource, columns, include, version, asked)


def table_pieces(
    request: Request, items: Sequence[Item], meta: ListMeta, now: datetime, version: str
) -> Iterator[bytes]:
    columns = columns_for(request.resource, items)
    form = table_form(request.resource, columns, included(request), version)
    rows = _row_groups(form, items, int(now.timestamp()))
    return joined(table_head(form, meta), rows, b"]}\n")


def _row_groups(form: TableForm, items: Sequence[Item], seconds: int) -> Iterator[Sequence[bytes]]:
    """Return the rows of some items at a time. Those that were written before are gathered without
    a call for each: of a long table most are. An empty group ends the piece when enough objects
    were decoded."""
    asked = form.row_form
    effort = 0
    for start in range(0, len(items), ROWS_TOGETHER):
        group = items[start : start + ROWS_TOGETHER]
        texts = [
            kept.text
            for item in group
            if (kept := item.row) is not None
            and kept.asked == asked
            and kept.since <= seconds < kept.until
        ]
        if len(texts) == len(group):
            yield texts
            continue
        texts = []
        for item in group:
            effort += item.size
            if effort > TURN:
                if texts:
                    yield texts
                yield ()
                effort, texts = item.size, []
            texts.append(row(form, item, seconds))
        yield texts


def columns_for(resource: Resource[Any], items: Iterable[Item]) -> Sequence[Column]:
    """Return the columns of a table with these objects. The first ones decide if there are many."""
    presentation = resource.presentation
    further, left = presentation.further_column, _SEARCHED_BYTES
    for item in items if further is not None else ():
        assert further is not None
        kept = item.row
        if kept.cells.is_marked if kept is not None else further.marker in item.body:
            return (*presentation.columns, further.column)
        left -= item.size
        if left < 0:
            break
    return presentation.columns


def table_head(form: TableForm, meta: ListMeta, *, columns: bool = True) -> bytes:
    definitions = msgspec.json.encode(column_definitions(form.columns)) if columns else b"null"
    return (
        b'{"kind":"Table","apiVersion":"meta.k8s.io/%b","metadata":%b,"columnDefinitions":%b,"rows":['
        % (form.version.encode(), msgspec.json.encode(meta), definitions)
    )


def included(request: Request) -> str:
    """How much of each object a row carries."""
    include = request.query.get("includeObject") or "Metadata"
    if include not in _INCLUDES:
        raise bad_request(f'unrecognized includeObject value: "{include}"')
    return include


def column_definitions(columns: Sequence[Column]) -> list[dict[str, Any]]:
    return [
        {
            "name": column.name,
            "type": column.type,
            "format": column.format,
            "description": column.description,
            "priority": column.priority,
        }
        for column in columns
    ]


class Row(msgspec.Struct, frozen=True, gc=False):
    """A row as it was written. It is replaced as a whole, because threads read it meanwhile."""

    asked: tuple[object, ...]
    """The form of the text."""
    since: int
    until: int
    """The text holds for all seconds from `since` to before `until`."""
    text: bytes
    cells: "_Cells"
    length: int
    """How many bytes of the text are its cells and conditions. The others do not change."""


def row(form: TableForm, item: Item, seconds: int) -> bytes:
    """One row. All but the ages is made once for each state of an object."""
    kept, asked = item.row, form.row_form
    rest: Sequence[bytes]
    if isinstance(kept, Row) and kept.asked == asked:
        if kept.since <= seconds < kept.until:
            return kept.text
        cells, rest = kept.cells, (kept.text[kept.length :],)
    else:
        is_for = isinstance(kept, Row) and kept.cells.is_for(form)
        cells, rest = kept.cells if is_for else _cells(form, item), _rest(form, item)
    text, constant = cells.written(seconds)
    written = Row(asked, seconds, seconds + constant, b"".join((text, *rest)), cells, len(text))
    if item.size <= ROW_KEPT:
        item.row = written
    return written.text


def _rest(form: TableForm, item: Item) -> tuple[bytes, ...]:
    """Return what follows the cells of a row, in parts that are joined once."""
    if form.include == "None":
        return (b"}",)
    is_whole = form.include == "Object"
    body = own_version(form.resource, item.body) if is_whole else partial(item, form.version)
    return b',"object":', body, b"}"


class _Cells(msgspec.Struct, frozen=True, gc=False):
    """The cells of a row, with gaps where ages go. Part of no cycle, and there are as many as
    objects: searches for garbage leave them out."""

    resource: Resource[Any]
    width: int
    is_marked: bool
    """Whether the object calls for the further column."""
    texts: tuple[bytes, ...]
    """The texts before, between and after the ages."""
    ages: tuple[tuple[int | None, Age], ...]

    def is_for(self, form: TableForm) -> bool:
        """Whether a table shows these cells."""
        return self.resource is form.resource and self.width == len(form.columns)

    def written(self, seconds: int) -> tuple[bytes, int]:
        """Return the cells, and for how many seconds they stay the same: the ages of old objects
        change rarely."""
        texts, constant = self.texts, LONG_AGE
        parts = [texts[0]]
        for at, (moment, cell) in enumerate(self.ages, 1):
            age, left = _UNKNOWN if moment is None else _age(seconds - moment)
            constant = min(constant, left)
            parts += b'"%b"' % cell.around(age).encode(), texts[at]
        return b"".join(parts), constant


_UNKNOWN: Final = ("<unknown>", LONG_AGE)


def _cells(form: TableForm, item: Item) -> _Cells:
    resource, body = form.resource, item.body
    further = resource.presentation.further_column
    is_marked = further is not None and further.marker in body
    obj = resource.decode_row(own_version(resource, body))
    ages: list[tuple[int | None, Age]] = []
    runs: list[list[object]] = [[]]
    for column in form.columns:
        cell = column.cell(obj)
        if isinstance(cell, Age):
            ages.append((_seconds(cell.timestamp), cell))
            runs.append([])
        else:
            runs[-1].append(cell)
    texts = _around_ages(runs)
    texts[-1] += b"]" + _row_conditions(resource, obj)
    return _Cells(resource, len(form.columns), is_marked, tuple(texts), tuple(ages))


def _around_ages(runs: list[list[object]]) -> list[bytes]:
    """Return the beginning of a row up to the first age, what is between ages, and what follows."""
    first, *others = (msgspec.json.encode(run, enc_hook=str)[1:-1] for run in runs)
    texts = [b'{"cells":[' + first]
    if others and first:
        texts[0] += b","
    for run in others:
        texts.append(b"," + run if run else b"")
    for at in range(1, len(texts) - 1):
        texts[at] += b","
    return texts


@lru_cache(4096)
def _age(seconds: int) -> tuple[str, int]:
    """Return an age as text, and for how many seconds it stays the same. Objects that were created
    in the same second have it in common."""
    return human_age(seconds), constant_age(seconds)


def _row_conditions(resource: Resource[Any], obj: Any) -> bytes:
    if resource.presentation.row_conditions is None:
        return b""
    conditions = resource.presentation.row_conditions(obj)
    return b',"conditions":' + msgspec.json.encode(list(conditions)) if conditions else b""


@lru_cache(4096)
def _seconds(timestamp: str) -> int | None:
    return int(parse_time(timestamp).timestamp()) if timestamp else None
