"""From etcd's watch to events of the store: whole revisions, each once, in order."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from itertools import pairwise

from kedge.storage.etcd.client import EtcdClient
from kedge.storage.etcd.failures import EtcdFailure, FailureKind
from kedge.storage.etcd.messages import EtcdEvent, EtcdKeyValue, WatchAnswer
from kedge.storage.store import RevisionCompacted, StoreEntry, StoreEvent


def store_entry(found: EtcdKeyValue) -> StoreEntry:
    """Return a key as the store shows it."""
    # Keys of others may be any bytes. They are shown, and cannot be written.
    key = found.key.decode(errors="backslashreplace")
    return StoreEntry(key, found.value, found.revision, found.created)


def store_event(event: EtcdEvent) -> StoreEvent | None:
    """Return an event as the store shows it; None if the entry that the write replaced is lost to
    compaction."""
    previous = None if event.before is None else store_entry(event.before)
    if event.is_delete:
        if previous is None:
            return None
        entry = StoreEntry(previous.key, previous.value, event.now.revision, previous.created)
        return StoreEvent("delete", entry, previous)
    if previous is None and event.now.version > 1:
        return None
    return StoreEvent("put", store_entry(event.now), previous)


async def whole_answers(
    answers: AsyncGenerator[WatchAnswer, None],
) -> AsyncGenerator[WatchAnswer, None]:
    """Join fragments: a revision with several events may be cut apart."""
    parts: list[EtcdEvent] = []
    async with aclosing(answers):
        async for answer in answers:
            if answer.is_fragment:
                parts += answer.events
            elif parts:
                yield answer._replace(events=[*parts, *answer.events])
                parts = []
            else:
                yield answer


async def changes(client: EtcdClient, since: int) -> AsyncGenerator[Sequence[StoreEvent], None]:
    """Yield the writes after a revision, first an empty list when the watch stands.

    Raises RevisionCompacted, or EtcdFailure when the connection ends.
    """
    # The watch starts at `since` and not behind it: etcd lets a watch begin right after the
    # compacted revisions, where deletions are lost already. The events of `since` are dropped.
    async with aclosing(whole_answers(client.watch(max(since, 1)))) as answers:
        async for answer in answers:
            if answer.canceled:
                raise _cancellation(client, answer, since)
            events = [store_event(each) for each in answer.events if each.now.revision > since]
            if None in events:
                raise RevisionCompacted(since, answer.header.revision)
            if events or answer.created:
                yield joined([event for event in events if event is not None])


def joined(events: list[StoreEvent]) -> list[StoreEvent]:
    """Mark all events of a revision but the last one."""
    for place, (event, following) in enumerate(pairwise(events)):
        if event.entry.revision == following.entry.revision:
            events[place] = StoreEvent(event.kind, event.entry, event.previous, more=True)
    return events


def _cancellation(
    client: EtcdClient, answer: WatchAnswer, since: int
) -> RevisionCompacted | EtcdFailure:
    if answer.compacted:
        return RevisionCompacted(since, answer.compacted)
    reason = answer.reason or "the watch was canceled"
    kind = FailureKind.UNKNOWN
    if "permission denied" in reason or "auth token" in reason:
        kind = FailureKind.TOKEN
    return EtcdFailure(kind, client.endpoints, reason)
