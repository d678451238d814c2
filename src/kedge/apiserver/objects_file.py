"""The file with the objects that a cluster begins with: those of another cluster."""

from collections.abc import Iterable, Sequence

import msgspec

from kedge.storage.store import StoreEntry


class StoredObject(msgspec.Struct, frozen=True):
    """An object as the store keeps it."""

    key: str
    value: msgspec.Raw


class StoredObjects(msgspec.Struct, frozen=True):
    """The content of the file."""

    objects: Sequence[StoredObject]
    """The oldest first: owners exist before what they own."""


def encode(entries: Iterable[StoreEntry]) -> bytes:
    """Return the content of a file with these objects."""
    oldest_first = sorted(entries, key=lambda entry: entry.created)
    return msgspec.json.encode(
        StoredObjects([StoredObject(each.key, msgspec.Raw(each.value)) for each in oldest_first])
    )


def decode(content: bytes) -> Sequence[StoredObject]:
    """Return the objects of a file."""
    return msgspec.json.decode(content, type=StoredObjects).objects
