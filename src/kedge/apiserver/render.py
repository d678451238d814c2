"""Objects as clients want them: the stored bytes, YAML, rows of a Table, or metadata only."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from kedge.api.core_v1.pod import pod, pod_addresses
from kedge.api.model import ListMeta, Object
from kedge.api.presentation import Age
from kedge.api.protobuf.messages import MEDIA_TYPE
from kedge.api.resource import Resource
from kedge.apiserver import protobuf_answers
from kedge.apiserver.media import ACCEPTED, OFFERED, Form, ResponseForm, negotiate
from kedge.apiserver.request import Request
from kedge.apiserver.watchcache import Item
from kedge.machinery.clock import Clock
from kedge.machinery.durations import human_age, parse_time
from kedge.machinery.errors import bad_request, not_acceptable
from kedge.web.message import JSON, HttpRequest, Response, warning_headers

PIECE = 256 << 10
"""Long bodies are written in pieces of about this size."""
TURN: Final = 512 << 10
"""Bytes of objects that are decoded for one piece. The row of a large object may be small:
otherwise a table of a hundred of them would be one piece."""
ROW_KEPT: Final = 32 << 10
"""Rows of larger objects are not kept: they may take as much memory as the objects."""

_INCLUDES = ("None", "Metadata", "Object")


def response_form(request: Request, offered: Sequence[Form]) -> ResponseForm:
    """The form the client prefers among those on offer; 406 if there is none."""
    for choice in negotiate(request.http.headers.get("accept", "")):
        if choice.form in offered and (choice.form != "protobuf" or request.resource.message):
            return choice
    raise not_acceptable(ACCEPTED if request.resource.message else OFFERED)


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


def own_version(resource: Resource[Any], body: bytes) -> bytes:
    """Stored bytes in the version that was asked for."""
    view = resource.relabelling
    if view is None:
        return body
    return msgspec.json.encode(view.from_stored(msgspec.json.decode(body)))


def one(request: Request, item: Item, clock: Clock, status: int = 200) -> Response:
    """A single object."""
    choice = response_form(request, ONE)
    headers = warning_headers(request.warnings) if request.warnings else []
    match choice.form:
        case "json":
            return Response(status, own_version(request.resource, item.body), JSON, headers)
        case "yaml":
            shown = to_yaml(msgspec.json.decode(own_version(request.resource, item.body)))
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


def list_pieces(resource: Resource[Any], items: Iterable[Item], meta: ListMeta) -> Iterator[bytes]:
    head = b'{"kind":%b,"apiVersion":%b,"metadata":%b,"items":[' % (
        msgspec.json.encode(resource.list_kind),
        msgspec.json.encode(resource.api_version),
        msgspec.json.encode(meta),
    )
    if resource.relabelling is None:
        bodies: Iterable[bytes] = (item.body for item in items)
    else:
        bodies = _in_turns(items, lambda item: own_version(resource, item.body))
    return joined(head, bodies, b"]}\n")


def address_pieces(
    resource: Resource[Any], items: Iterable[Item], meta: ListMeta
) -> Iterator[bytes]:
    """A list of pods that shows only what network policies refer to."""
    head = b'{"kind":%b,"apiVersion":"v1","metadata":%b,"items":[' % (
        msgspec.json.encode(resource.list_kind),
        msgspec.json.encode(meta),
    )
    return joined(head, (pod_addresses.reduced(item.body) for item in items), b"]}\n")


def partial_pieces(items: Iterable[Item], meta: ListMeta, version: str) -> Iterator[bytes]:
    head = b'{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/%b",' % version.encode()
    head += b'"metadata":%b,"items":[' % msgspec.json.encode(meta)
    return joined(head, _in_turns(items, lambda item: partial(item, version)), b"]}\n")


def partial(item: Item, version: str) -> bytes:
    """Only the metadata of an object."""
    return b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/%b","metadata":%b}' % (
        version.encode(),
        item.metadata,
    )


def _in_turns(items: Iterable[Item], show: Callable[[Item], bytes]) -> Iterator[bytes]:
    """Show the items; an empty element ends the piece when enough of them were decoded."""
    effort = 0
    for item in items:
        effort += len(item.body)
        if effort > TURN:
            yield b""
            effort = len(item.body)
        yield show(item)


def joined(head: bytes, elements: Iterable[bytes], tail: bytes) -> Iterator[bytes]:
    """Head, elements separated by commas, tail: in pieces that are worth a system call each. The
    first one may be empty."""
    piece: list[bytes] = []
    size = 0
    first = True
    for element in elements:
        if element:
            piece.append(element)
            size += len(element)
        if size >= PIECE or not element:
            if not piece:
                yield b""
                continue
            yield (head if first else b",") + b",".join(piece)
            first, piece, size = False, [], 0
    start = head if first else (b"," if piece else b"")
    yield start + b",".join(piece) + tail


def indented_pieces(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Return the pieces of a list with its JSON indented, one at a time: to indent a list of a
    hundred megabytes at once takes a second."""
    end = b"]}\n"
    is_first = True
    for piece in pieces:
        is_last = piece.endswith(end)  # line ends are nowhere else
        content = piece.removesuffix(end).removeprefix(b",")
        if is_first and content:
            text = msgspec.json.format(content + end, indent=2)
            yield text + b"\n" if is_last else text.removesuffix(b"\n  ]\n}")
            is_first = False
            continue
        shown = b""
        if content:
            inner = msgspec.json.format(b"[%b]" % content, indent=2)[1:-2]
            shown = b"," + inner.replace(b"\n", b"\n  ")
        yield shown + (b"\n  ]\n}\n" if is_last else b"")


YAML_PIECE = 32 << 10
"""Least size of a piece of YAML; writing that much takes about five milliseconds."""


def to_yaml(document: Any) -> bytes:
    """Return a document as YAML. A decoded document takes ten times the memory of its text, so it
    never waits for a client that does not read."""
    from kedge.machinery import yaml_text  # few clients want any, and it takes a while to load

    return yaml_text.write(document).encode()


def yaml_list_pieces(
    resource: Resource[Any], items: Iterable[Item], meta: ListMeta
) -> Iterator[bytes]:
    """A list as YAML, in pieces of whole objects: none is decoded while a piece is sent."""
    from kedge.machinery import yaml_text

    def lines() -> Iterator[str]:
        yield yaml_text.write({"apiVersion": resource.api_version})
        empty = True
        for item in items:
            if empty:
                yield "items:\n"
            empty = False
            yield yaml_text.write([msgspec.json.decode(own_version(resource, item.body))])
        if empty:
            yield "items: []\n"
        yield yaml_text.write({"kind": resource.list_kind, "metadata": msgspec.to_builtins(meta)})

    return _gathered(lines())


def _gathered(texts: Iterable[str]) -> Iterator[bytes]:
    piece: list[str] = []
    size = 0
    for text in texts:
        piece.append(text)
        size += len(text)
        if size >= YAML_PIECE:
            yield "".join(piece).encode()
            piece, size = [], 0
    if piece:
        yield "".join(piece).encode()


# Tables.


def table_pieces(
    request: Request, items: Iterable[Item], meta: ListMeta, now: datetime, version: str
) -> Iterator[bytes]:
    include = included(request)
    seconds = int(now.timestamp())
    head = table_head(request.resource, meta, version)
    rows = _in_turns(items, lambda item: row(request.resource, item, include, seconds, version))
    return joined(head, rows, b"]}\n")


def table_head(
    resource: Resource[Any], meta: ListMeta, version: str, *, columns: bool = True
) -> bytes:
    definitions = msgspec.json.encode(column_definitions(resource)) if columns else b"null"
    return (
        b'{"kind":"Table","apiVersion":"meta.k8s.io/%b","metadata":%b,"columnDefinitions":%b,"rows":['
        % (version.encode(), msgspec.json.encode(meta), definitions)
    )


def included(request: Request) -> str:
    """How much of each object a row carries."""
    include = request.query.get("includeObject") or "Metadata"
    if include not in _INCLUDES:
        raise bad_request(f'unrecognized includeObject value: "{include}"')
    return include


def column_definitions(resource: Resource[Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": column.name,
            "type": column.type,
            "format": column.format,
            "description": column.description,
            "priority": column.priority,
        }
        for column in resource.presentation.columns
    ]


def row(resource: Resource[Any], item: Item, include: str, seconds: int, version: str) -> bytes:
    """One row. All but the ages is made once for each state of an object."""
    cached = item.row
    if not isinstance(cached, _Row) or cached.resource is not resource:
        cached = _Row(resource, item)
        if len(item.body) <= ROW_KEPT:
            item.row = cached
    return cached.written(item, include, seconds, version)


class _Row:
    """The cells of a row with gaps where ages go, and the row as it was last written."""

    __slots__ = ("_ages", "_asked", "_texts", "_written", "resource")

    def __init__(self, resource: Resource[Any], item: Item) -> None:
        self.resource = resource
        self._asked: tuple[str, int, str] | None = None
        self._written = b""
        obj = resource.decode(own_version(resource, item.body))
        texts = [b'{"cells":[']
        ages: list[tuple[int | None, Age]] = []
        for i, column in enumerate(resource.presentation.columns):
            cell = column.cell(obj)
            if i:
                texts[-1] += b","
            if isinstance(cell, Age):
                ages.append((_seconds(cell.timestamp), cell))
                texts.append(b"")
            else:
                texts[-1] += msgspec.json.encode(cell, enc_hook=str)
        texts[-1] += b"]" + _row_conditions(resource, obj)
        self._texts = texts
        self._ages = ages

    def written(self, item: Item, include: str, seconds: int, version: str) -> bytes:
        asked = (include, seconds, version)
        if self._asked != asked:
            # Ages stand still for a second, and so do whole tables for those who ask at once.
            self._written = self._write(item, *asked)
            self._asked = asked
        return self._written

    def _write(self, item: Item, include: str, seconds: int, version: str) -> bytes:
        cells = self._cells(seconds)
        if include == "None":
            return cells + b"}"
        if include == "Object":
            return b'%b,"object":%b}' % (cells, own_version(self.resource, item.body))
        return b'%b,"object":%b}' % (cells, partial(item, version))

    def _cells(self, seconds: int) -> bytes:
        texts = self._texts
        if len(texts) == 1:
            return texts[0]
        parts = [texts[0]]
        for (moment, cell), text in zip(self._ages, texts[1:], strict=True):
            age = "<unknown>" if moment is None else human_age(seconds - moment)
            parts.append(b'"%b"' % cell.around(age).encode())
            parts.append(text)
        return b"".join(parts)


def _row_conditions(resource: Resource[Any], obj: Object) -> bytes:
    if resource.presentation.row_conditions is None:
        return b""
    conditions = resource.presentation.row_conditions(obj)
    return b',"conditions":' + msgspec.json.encode(list(conditions)) if conditions else b""


def _seconds(timestamp: str) -> int | None:
    return int(parse_time(timestamp).timestamp()) if timestamp else None
