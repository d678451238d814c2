"""SnapshotInfo and RestoreResult: the objects of a cluster at a moment, and what became of them."""

import msgspec


class SnapshotInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A snapshot that a server holds in memory."""

    id: str
    time: str
    revision: int
    objects: int
    bytes: int


class RestoreResult(msgspec.Struct, frozen=True, kw_only=True):
    """The number of objects that a restore has changed."""

    created: int
    updated: int
    deleted: int
    revision: int
    """The revision from which everybody sees the objects of the snapshot."""
