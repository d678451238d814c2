"""The Store protocol: keys, bytes and revisions, without knowledge of objects."""

from asyncio import Future
from collections.abc import AsyncGenerator
from typing import Final, Literal, NamedTuple, Protocol, runtime_checkable

import msgspec

from kedge.machinery.write_guard import WriteGuard

FIRST_REVISION = 1
"""Where an empty store stands: clients read a meaning into 0, so it is never handed out."""

DISK_FULL: Final = "disk full"
"""The only failure of a store that is temporary."""


ENCRYPTED: Final = b"k8s:enc:"
"""The beginning of encrypted values, as in Kubernetes."""


PROTOBUF: Final = b"k8s\0"
"""The beginning of values that kube-apiserver stores as protobuf."""


class StoreEntry(msgspec.Struct, frozen=True, gc=False):
    """The state of one key after one write."""

    key: str
    value: bytes
    revision: int
    """The write that gave the key this value."""
    created: int
    """The write that brought the key into being."""


class StoreEvent(msgspec.Struct, frozen=True, gc=False):
    """One write. A deletion's entry carries the last value and the revision of the deletion."""

    kind: Literal["put", "delete"]
    entry: StoreEntry
    previous: StoreEntry | None
    """The entry that the write replaced; None for a creation."""
    more: bool = False
    """Whether the next event of the store has the same revision: a transaction of another program,
    or a lease of etcd, wrote several keys."""


class StorePage(msgspec.Struct, frozen=True, gc=False):
    """Entries in the order of their keys, all as of one revision."""

    entries: list[StoreEntry]
    revision: int
    more: bool
    remaining: int
    """How many entries follow this page."""


NEVER: Final = -1
"""A revision that no key has."""


class PendingRevision:
    """The revision of a queued write, which another write may expect before it is known."""

    __slots__ = ("tenant", "value")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        """In whose queue the write waits. A write that expects it waits there, too: behind it."""
        self.value = NEVER
        """Known once the write is committed; no key is ever at the revision of one that failed."""


class QueuedPut(NamedTuple):
    """A put that the store will carry out."""

    revision: PendingRevision
    entry: Future[StoreEntry]
    """Has the outcome of `Store.put`."""


class StoreError(Exception):
    """The store failed; a write that raises this was not acknowledged."""


class RevisionConflict(StoreError):
    """The key is not at the revision the writer expected."""

    def __init__(self, key: str, current: StoreEntry | None) -> None:
        found = f"at revision {current.revision}" if current else "absent"
        super().__init__(f"{key} is {found}")
        self.key = key
        self.current = current


class GuardLost(StoreError):
    """The condition of the task that writes does not hold any more."""

    def __init__(self, guard: WriteGuard) -> None:
        super().__init__(f"another server has taken over {guard.key}")
        guard.is_lost = True


class RevisionCompacted(StoreError):
    """The requested revision was compacted."""

    def __init__(self, revision: int, oldest: int) -> None:
        super().__init__(f"revision {revision} is compacted, the oldest left is {oldest}")
        self.revision = revision
        self.oldest = oldest


class FutureRevision(StoreError):
    """The requested revision is newer than the store's."""

    def __init__(self, revision: int, newest: int) -> None:
        super().__init__(f"revision {revision} is still to come, the newest is {newest}")
        self.revision = revision
        self.newest = newest


class DiskFull(StoreError):
    """There is no space for the write; deletions and small changes may still succeed."""


class StoreUnavailable(StoreError):
    """The store does not answer for now; the request had no effect, and may be repeated."""


class WriteOutcomeUnknown(StoreError):
    """The store did not say whether it carried out a write, and could not be asked afterwards."""


class ValueTooLarge(StoreError):
    """The store does not take values of this size."""


class StoreReplaced(StoreError):
    """The store has lost writes that it acknowledged, or is another one than before. A server that
    starts anew serves what the store has now."""


class StoreDamaged(StoreError):
    """Stored data cannot be read, or part of it is lost."""


class UndecryptableValue(StoreError):
    """A value is encrypted with a key that the server does not have, or was changed."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"{key} cannot be decrypted: no key of --encryption-provider-config fits. Start with a"
            " file that has the key with which it was written"
        )


class UnreadableValue(StoreError):
    """Another program stored a value that is not an object in JSON."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(
            f"{key} {why}, and kedge reads objects in JSON. Let the kube-apiserver that wrote it"
            " run with --storage-media-type=application/json and write all objects again, or delete"
            " the key with etcdctl"
        )


class KeyServiceError(StoreError):
    """A key management service does not answer as it must."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f'key service "{name}": {why}')


class StoreClosed(StoreError):
    """The store was closed."""

    def __init__(self) -> None:
        super().__init__("the store is closed")


class Store(Protocol):
    """Compare-and-swap on keys, one strictly increasing revision across them all, and watches.

    Each write through this protocol has a revision of its own. Stores that several servers can
    share compare the guard of the task that writes (`write_guard.py`) in the same transaction, and
    raise GuardLost.
    """

    @property
    def revision(self) -> int:
        """The newest revision whose event watchers have been given. Costs nothing to ask."""
        ...

    async def newest(self) -> int:
        """Return a revision that is not older than any write that was acknowledged before the call,
        by this program or another one that uses the same store. Watchers may not have it yet."""
        ...

    @property
    def failure(self) -> str:
        """Why writes are refused, in a few words; empty while they are not."""
        ...

    async def get(self, key: str) -> StoreEntry | None:
        """The key as it stands now."""
        ...

    async def list(self, prefix: str, *, at: int = 0, after: str = "", limit: int = 0) -> StorePage:
        """Entries under the prefix whose key is greater than `after`, at most `limit` if positive.

        With `at`, as they stood at that revision; raises RevisionCompacted or FutureRevision.
        """
        ...

    async def put(self, key: str, value: bytes, *, expect: int, ttl: int = 0) -> StoreEntry:
        """Write the key if its revision is `expect`, 0 meaning that it must not exist.

        Returns once the write would survive a crash; raises RevisionConflict. With `ttl`, the store
        deletes the key after that many seconds, unless it is written again before.
        """
        ...

    async def delete(self, key: str, *, expect: int) -> StoreEntry:
        """Remove the key if its revision is `expect`; returns it at the revision of the removal."""
        ...

    def watch(self, prefix: str, *, since: int) -> AsyncGenerator[StoreEvent, None]:
        """Every write under the prefix with a revision above `since`, in order, each exactly once.

        History comes first, then live writes; the watch never ends by itself. Raises
        RevisionCompacted if `since` lies before the kept history, also when the consumer falls that
        far behind.
        """
        ...

    async def compact(self, revision: int) -> None:
        """Forget what was superseded or deleted by that revision, which itself stays readable."""
        ...

    async def close(self) -> None:
        """Finish the writes under way and let go; watches end with StoreClosed."""
        ...


@runtime_checkable
class ChainingStore(Protocol):
    """A store that also takes writes on top of writes that are not committed.

    They may share a commit. A write fails with RevisionConflict if the one that it expects fails.
    """

    def submit(
        self, key: str, value: bytes, *, expect: int | PendingRevision, ttl: int = 0
    ) -> QueuedPut:
        """Queue a put, after all that the caller has queued before."""
        ...


def check_key(key: str) -> None:
    """Raise ValueError for a key that not every implementation can hold."""
    if not key or "\0" in key:
        raise ValueError(f"invalid key, empty or with a NUL character: {key!r}")
    key.encode()


def put_event(
    current: StoreEntry | None, key: str, value: bytes, expect: int, revision: int
) -> StoreEvent:
    """The event of a put that becomes `revision`; raises RevisionConflict."""
    if current is None:
        if expect != 0:
            raise RevisionConflict(key, None)
        return StoreEvent("put", StoreEntry(key, value, revision, revision), None)
    if current.revision != expect:
        raise RevisionConflict(key, current)
    return StoreEvent("put", StoreEntry(key, value, revision, current.created), current)


def delete_event(current: StoreEntry | None, key: str, expect: int, revision: int) -> StoreEvent:
    """The event of a deletion that becomes `revision`; raises RevisionConflict."""
    if current is None or current.revision != expect:
        raise RevisionConflict(key, current)
    return StoreEvent("delete", StoreEntry(key, current.value, revision, current.created), current)


def prefix_end(prefix: str) -> str:
    """The least string greater than every key with this prefix, or "" if there is none."""
    kept = prefix.rstrip(chr(0x10FFFF))
    if not kept:
        return ""
    following = ord(kept[-1]) + 1
    # Surrogates have no UTF-8 form; between them and their neighbours there is no valid key.
    return kept[:-1] + chr(0xE000 if following == 0xD800 else following)
