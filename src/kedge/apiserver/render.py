"""Objects as clients want them: the stored bytes, YAML, rows of a Table, or metadata only."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from kedge.api.model import ListMeta, Object
from kedge.api.presentation import Age
from kedge.api.resource import Resource
from kedge.apiserver.media import OFFERED, Form, ResponseForm, negotiate
from kedge.apiserver.request import Request
from kedge.apiserver.watchcache import Item
from kedge.machinery.clock import Clock
from kedge.machinery.durations import human_age, parse_time
from kedge.machinery.errors import bad_request, not_acceptable
from kedge.web.message import JSON, Response, warning_headers

PIECE = 256 << 10
"""Long bodies are written in pieces of about this size."""

_INCLUDES = ("None", "Metadata", "Object")


def wanted(request: Request, offered: Sequence[Form]) -> ResponseForm:
    """The form the client prefers among those on offer; 406 if there is none."""
    for choice in negotiate(request.http.headers.get("accept", "")):
        if choice.form in offered:
            return choice
    raise not_acceptable(OFFERED)


def check(request: Request, offered: Sequence[Form]) -> None:
    """Refuse now what could not be shown later."""
    if wanted(request, offered).form == "table":
        included(request)


ONE: Sequence[Form] = ("json", "yaml", "table", "partial")
MANY: Sequence[Form] = ("json", "yaml", "table", "partial-list")
PLAIN: Sequence[Form] = ("json", "yaml")


def own_version(resource: Resource[Any], body: bytes) -> bytes:
    """Stored bytes in the version that was asked for."""
    if resource.store_as is None:
        return body
    return msgspec.json.encode(resource.store_as.from_stored(msgspec.json.decode(body)))


def one(request: Request, item: Item, clock: Clock, status: int = 200) -> Response:
    """A single object."""
    choice = wanted(request, ONE)
    headers = warning_headers(request.warnings) if request.warnings else []
    match choice.form:
        case "json":
            return Response(status, own_version(request.resource, item.body), JSON, headers)
        case "yaml":
            pieces = yaml_pieces(msgspec.json.decode(own_version(request.resource, item.body)))
            return Response(status, pieces, "application/yaml", headers)
        case "partial":
            return Response(status, partial(item, choice.version), JSON, headers)
        case _:
            meta = ListMeta(resourceVersion=str(item.revision))
            table = b"".join(table_pieces(request, [item], meta, clock.now(), choice.version))
            return Response(status, table, JSON, headers)


def many(request: Request, items: Iterable[Item], meta: ListMeta, clock: Clock) -> Response:
    """A list of objects."""
    choice = wanted(request, MANY)
    resource = request.resource
    match choice.form:
        case "json":
            return Response(200, list_pieces(resource, items, meta))
        case "yaml":
            return Response(200, yaml_list_pieces(resource, items, meta), "application/yaml")
        case "partial-list":
            return Response(200, partial_pieces(items, meta, choice.version))
        case _:
            pieces = table_pieces(request, items, meta, clock.now(), choice.version)
            return Response(200, pieces)


def list_pieces(resource: Resource[Any], items: Iterable[Item], meta: ListMeta) -> Iterator[bytes]:
    head = b'{"kind":%b,"apiVersion":%b,"metadata":%b,"items":[' % (
        msgspec.json.encode(resource.list_kind),
        msgspec.json.encode(resource.api_version),
        msgspec.json.encode(meta),
    )
    if resource.store_as is None:
        bodies: Iterable[bytes] = (item.body for item in items)
    else:
        bodies = (own_version(resource, item.body) for item in items)
    return joined(head, bodies, b"]}\n")


def partial_pieces(items: Iterable[Item], meta: ListMeta, version: str) -> Iterator[bytes]:
    head = b'{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/%b",' % version.encode()
    head += b'"metadata":%b,"items":[' % msgspec.json.encode(meta)
    return joined(head, (partial(item, version) for item in items), b"]}\n")


def partial(item: Item, version: str) -> bytes:
    """Only the metadata of an object."""
    return b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/%b","metadata":%b}' % (
        version.encode(),
        item.metadata,
    )


def joined(head: bytes, elements: Iterable[bytes], tail: bytes) -> Iterator[bytes]:
    """Head, elements separated by commas, tail: in pieces that are worth a system call each."""
    piece: list[bytes] = []
    size = 0
    first = True
    for element in elements:
        piece.append(element)
        size += len(element)
        if size >= PIECE:
            yield (head if first else b",") + b",".join(piece)
            first, piece, size = False, [], 0
    start = head if first else (b"," if piece else b"")
    yield start + b",".join(piece) + tail


YAML_PIECE = 32 << 10
"""Size of a piece of YAML; writing one takes about five milliseconds."""


def to_yaml(body: bytes) -> bytes:
    """A small document as YAML."""
    return b"".join(yaml_pieces(msgspec.json.decode(body)))


def yaml_pieces(document: Any) -> Iterator[bytes]:
    """A document as YAML, written piece by piece while it is sent."""
    from kedge.machinery import yaml_text  # few clients want any, and it takes a while to load

    return _gathered(yaml_text.pieces(document))


def yaml_list_pieces(
    resource: Resource[Any], items: Iterable[Item], meta: ListMeta
) -> Iterator[bytes]:
    """A list as YAML; no more than one of its objects is decoded at a time."""
    from kedge.machinery import yaml_text

    def lines() -> Iterator[str]:
        yield from yaml_text.pieces({"apiVersion": resource.api_version})
        empty = True
        for item in items:
            if empty:
                yield "items:\n"
            empty = False
            yield from yaml_text.pieces([msgspec.json.decode(own_version(resource, item.body))])
        if empty:
            yield "items: []\n"
        yield from yaml_text.pieces(
            {"kind": resource.list_kind, "metadata": msgspec.to_builtins(meta)}
        )

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
    rows = (row(request.resource, item, include, seconds, version) for item in items)
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
        cached = item.row = _Row(resource, item)
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
