"""Lists of objects as JSON and YAML, whole or metadata only, in pieces of a limited size."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final

import msgspec

from kedge.api.core_v1.pod import pod_addresses
from kedge.api.model import ListMeta
from kedge.api.resource import Resource
from kedge.apiserver.watchcache import Item, bodies_of

PIECE: Final = 256 << 10
"""Long bodies are written in pieces of about this size."""
TOGETHER: Final = 32
"""Objects that are gathered without a call for each."""
TURN: Final = 512 << 10
"""Bytes of objects that are decoded for one piece. The row of a large object may be small:
otherwise a table of a hundred of them would be one piece."""


def own_version(resource: Resource[Any], body: bytes) -> bytes:
    """Stored bytes in the version that was asked for."""
    if resource.relabelling is None:
        return body
    return msgspec.json.encode(own_document(resource, body))


def own_document(resource: Resource[Any], body: bytes) -> dict[str, Any]:
    """Stored bytes as a document of the version that was asked for."""
    document: dict[str, Any] = msgspec.json.decode(body)
    view = resource.relabelling
    return document if view is None else view.from_stored(document)


def list_pieces(resource: Resource[Any], items: Sequence[Item], meta: ListMeta) -> Iterator[bytes]:
    head = b'{"kind":%b,"apiVersion":%b,"metadata":%b,"items":[' % (
        msgspec.json.encode(resource.list_kind),
        msgspec.json.encode(resource.api_version),
        msgspec.json.encode(meta),
    )
    if resource.custom:
        return joined(head, _typed(resource, items), b"]}\n")
    return joined(head, _untyped(resource, items), b"]}\n", opening=b"{")


def _typed(resource: Resource[Any], items: Sequence[Item]) -> Iterable[Sequence[bytes]]:
    """Return whole objects, some at a time."""
    if resource.relabelling is None:
        return _groups(items)
    return in_turns(items, lambda item: own_version(resource, item.body))


def _untyped(resource: Resource[Any], items: Sequence[Item]) -> Iterable[Sequence[bytes]]:
    """Return objects without their kind, their apiVersion and their first brace, some at a time.
    The items of a list do not say what they are, as in Kubernetes; only custom resources do."""
    if resource.store_as is not None:
        return in_turns(items, lambda item: _encoded(own_document(resource, item.body)))
    start = b'{"kind":%b,"apiVersion":%b,' % (
        msgspec.json.encode(resource.kind),
        msgspec.json.encode(resource.api_version),
    )
    return (_without_start(bodies, start) for bodies in _groups(items))


def _without_start(bodies: Sequence[bytes], start: bytes) -> Sequence[bytes]:
    """Return objects without their kind, apiVersion and first brace, with which they begin if this
    server wrote them. Not a call for each of them: it is felt in long lists."""
    shortened = list(map(bytes.removeprefix, bodies, repeat(start)))
    if sum(map(len, bodies)) - sum(map(len, shortened)) == len(bodies) * len(start):
        return shortened
    return [
        body.removeprefix(start) if body.startswith(start) else _encoded(msgspec.json.decode(body))
        for body in bodies
    ]


def _groups(items: Sequence[Item]) -> Iterator[Sequence[bytes]]:
    """Return the bodies of some items at a time, large ones by themselves."""
    for at in range(0, len(items), TOGETHER):
        bodies = bodies_of(items[at : at + TOGETHER])
        if sum(map(len, bodies)) <= PIECE:
            yield bodies
        else:
            yield from ((body,) for body in bodies)


def _encoded(document: dict[str, Any]) -> bytes:
    return msgspec.json.encode(without_type(document))[1:]


def without_type(document: dict[str, Any]) -> dict[str, Any]:
    """Return an object as the items of a list show it."""
    return {key: value for key, value in document.items() if key not in ("kind", "apiVersion")}


def address_pieces(
    resource: Resource[Any], items: Iterable[Item], meta: ListMeta
) -> Iterator[bytes]:
    """A list of pods that shows only what network policies refer to."""
    head = b'{"kind":%b,"apiVersion":"v1","metadata":%b,"items":[' % (
        msgspec.json.encode(resource.list_kind),
        msgspec.json.encode(meta),
    )
    return joined(head, ((pod_addresses.reduced(item.body),) for item in items), b"]}\n")


def partial_pieces(items: Iterable[Item], meta: ListMeta, version: str) -> Iterator[bytes]:
    head = b'{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/%b",' % version.encode()
    head += b'"metadata":%b,"items":[' % msgspec.json.encode(meta)
    return joined(head, in_turns(items, lambda item: partial(item, version)), b"]}\n")


def partial(item: Item, version: str) -> bytes:
    """Only the metadata of an object."""
    return b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/%b","metadata":%b}' % (
        version.encode(),
        item.metadata,
    )


def in_turns(items: Iterable[Item], show: Callable[[Item], bytes]) -> Iterator[Sequence[bytes]]:
    """Show the items; an empty group ends the piece when enough of them were decoded."""
    effort = 0
    for item in items:
        effort += item.size
        if effort > TURN:
            yield ()
            effort = item.size
        yield (show(item),)


def joined(
    head: bytes, groups: Iterable[Sequence[bytes]], tail: bytes, *, opening: bytes = b""
) -> Iterator[bytes]:
    """Head, elements separated by commas, tail: in pieces that are worth a system call each. The
    first one may be empty. Each element follows the opening. An empty group ends the piece."""
    separator = b"," + opening
    lead: bytes | None = head + opening
    piece: list[bytes] = []
    size = 0
    for group in groups:
        piece += group
        size += sum(map(len, group))
        if size >= PIECE or not group:
            has_begun = lead is None or bool(piece)
            yield _piece(lead, piece, separator)
            lead, piece, size = (None if has_begun else lead), [], 0
    if piece:
        yield _piece(lead, piece, separator, tail)
    else:
        yield tail if lead is None else head + tail


def _piece(lead: bytes | None, elements: list[bytes], separator: bytes, tail: bytes = b"") -> bytes:
    """Join elements. Before them comes the lead; without one, the separator from the piece before.

    A long list is copied as rarely as possible, because that takes as long as its encryption: lead
    and tail are joined with one element each, not with the whole piece.
    """
    if not elements:
        return b""
    if lead is None:
        elements.insert(0, b"")
    else:
        elements[0] = lead + elements[0]
    elements[-1] += tail
    return separator.join(elements)


INDENTED_BYTES = 1 << 20
"""Longer documents and pieces are sent as they are: it takes a millisecond to indent a hundred
kilobytes."""


def indented_pieces(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Return the pieces of a list with its JSON indented, one at a time: to indent a list of a
    hundred megabytes at once takes a second."""
    end = b"]}\n"
    is_first = True
    for piece in pieces:
        is_last = piece.endswith(end)  # line ends are nowhere else
        content = piece.removesuffix(end).removeprefix(b",")
        if len(content) > INDENTED_BYTES:
            yield piece
            is_first = False
            continue
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
            yield yaml_text.write([_item_document(resource, item)])
        if empty:
            yield "items: []\n"
        yield yaml_text.write({"kind": resource.list_kind, "metadata": msgspec.to_builtins(meta)})

    return _gathered(lines())


def _item_document(resource: Resource[Any], item: Item) -> dict[str, Any]:
    document = own_document(resource, item.body)
    return document if resource.custom else without_type(document)


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
