"""Answers in protobuf, for clients that prefer it: objects, lists, metadata, errors and events.

Objects are stored as JSON. One is encoded as protobuf when the first client asks for it, and small
ones keep the result. The message of a list begins with its length, so the objects of a list are
encoded before its first byte is sent. Only their lengths are kept until then: a list may be as
large as the store.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from kedge.api.model import ListMeta
from kedge.api.protobuf.encoder import ENVELOPE_END, encode, envelope, envelope_head
from kedge.api.protobuf.messages import MEDIA_TYPE
from kedge.api.resource import Resource
from kedge.apiserver.watchcache import Item
from kedge.machinery.protobuf_wire import bytes_field, bytes_head

WATCH_TYPE: Final = f"{MEDIA_TYPE};stream=watch"
KEPT: Final = 8 << 10
"""Results for larger objects are not kept: they take as much memory as the objects."""
TURN: Final = 32 << 10
"""Bytes of objects that are encoded in one turn; that takes about five milliseconds."""

_METADATA: Final = "meta.v1.ObjectMeta"
_ITEMS: Final = 2
"""The number of the field `items` in every list."""


def one(resource: Resource[Any], item: Item) -> bytes:
    """Return one object."""
    return envelope(resource.api_version, resource.kind, raw(resource, item))


def raw(resource: Resource[Any], item: Item) -> bytes:
    """Return the message of an object, without its kind."""
    # Read once: another thread may drop it.
    kept = item.protobuf
    if kept is not None and resource.store_as is None:
        return kept
    document = msgspec.json.decode(item.body)
    if resource.store_as is not None:
        return encode(resource.message, resource.store_as.from_stored(document))
    encoded = encode(resource.message, document)
    if len(item.body) <= KEPT:
        item.protobuf = encoded
    return encoded


def partial(item: Item, version: str) -> bytes:
    """Return the metadata of an object."""
    return envelope(f"meta.k8s.io/{version}", "PartialObjectMetadata", _partial(item))


def _partial(item: Item) -> bytes:
    return bytes_field(1, encode(_METADATA, msgspec.json.decode(item.metadata)))


def document(resource: Resource[Any], content: Mapping[str, Any]) -> bytes:
    """Return a document that is not stored, such as a review."""
    return envelope(resource.api_version, resource.kind, encode(resource.message, content))


def status(content: Mapping[str, Any]) -> bytes:
    """Return a Status."""
    return envelope("v1", "Status", encode("meta.v1.Status", content))


def event(type_: str, body: bytes) -> bytes:
    """Return an event of a watch about an object with its envelope. The events of a stream are
    messages, each after its length in four bytes."""
    message = bytes_field(1, type_.encode()) + bytes_field(2, bytes_field(1, body))
    return struct.pack(">I", len(message)) + message


def list_pieces(resource: Resource[Any], items: Sequence[Item], meta: ListMeta) -> Iterator[bytes]:
    """Return a list of objects in pieces."""
    kind = (resource.api_version, resource.list_kind)
    return _pieces(kind, items, meta, lambda item: raw(resource, item))


def partial_pieces(items: Sequence[Item], meta: ListMeta, version: str) -> Iterator[bytes]:
    """Return the metadata of the objects of a list in pieces."""
    return _pieces((f"meta.k8s.io/{version}", "PartialObjectMetadataList"), items, meta, _partial)


def _pieces(
    kind: tuple[str, str], items: Sequence[Item], meta: ListMeta, show: Callable[[Item], bytes]
) -> Iterator[bytes]:
    """Empty pieces end a turn of the event loop."""
    size = 0
    for item, is_last_of_turn in _turns(items):
        length = len(show(item))
        size += len(bytes_head(_ITEMS, length)) + length
        if is_last_of_turn:
            yield b""
    first = bytes_field(1, encode("meta.v1.ListMeta", msgspec.to_builtins(meta)))
    piece = [envelope_head(*kind, len(first) + size), first]
    for item, is_last_of_turn in _turns(items):
        content = show(item)
        piece += (bytes_head(_ITEMS, len(content)), content)
        if is_last_of_turn:
            yield b"".join(piece)
            piece = []
    yield b"".join(piece) + ENVELOPE_END


def _turns(items: Iterable[Item]) -> Iterator[tuple[Item, bool]]:
    """Return items, each with whether enough of them were encoded for one turn."""
    effort = 0
    for item in items:
        effort += len(item.body)
        yield item, effort > TURN
        if effort > TURN:
            effort = 0
