import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import pytest

from kedge.storage.feed import Feeds
from kedge.storage.store import RevisionCompacted, StoreEntry, StoreEvent, StoreReplaced


def created(revision: int) -> StoreEvent:
    return StoreEvent("put", StoreEntry(f"/{revision}", b"", revision, revision), None)


async def no_history(prefix: str, since: int, until: int) -> Sequence[StoreEvent]:
    raise AssertionError("asked for history although none was missed")


async def test_all_events_of_a_commit_take_one_wake_up() -> None:
    feeds = Feeds(1)
    async with aclosing(feeds.watch("", 1, no_history)) as watch:
        pending = asyncio.ensure_future(anext(watch))
        await asyncio.wait([pending], timeout=0)
        feeds.publish([created(revision) for revision in (2, 3, 4)])
        assert (await pending).entry.revision == 2
        # The rest is at hand: it comes without the event loop being asked.
        rest = []
        for _ in range(2):
            try:
                anext(watch).send(None)
            except StopIteration as arrived:
                rest.append(arrived.value.entry.revision)
    assert rest == [3, 4]


async def test_a_watcher_that_leaves_is_forgotten() -> None:
    feeds = Feeds(1)
    watching = asyncio.ensure_future(anext(feeds.watch("", 1, no_history)))
    await asyncio.wait([watching], timeout=0)
    assert len(feeds._open) == 1
    watching.cancel()
    await asyncio.wait([watching])
    assert not feeds._open


async def test_a_watcher_is_sent_to_history_when_events_are_skipped() -> None:
    asked: list[tuple[int, int]] = []

    async def history(prefix: str, since: int, until: int) -> Sequence[StoreEvent]:
        asked.append((since, until))
        raise RevisionCompacted(since, until)

    feeds = Feeds(1)
    watching = asyncio.ensure_future(anext(feeds.watch("", 1, history)))
    await asyncio.wait([watching], timeout=0)
    feeds.skip(9)
    with pytest.raises(RevisionCompacted):
        await watching
    assert asked == [(1, 9)]
    assert feeds.revision == 9


async def test_a_watch_ends_with_the_error_of_the_store() -> None:
    feeds = Feeds(1)
    watching = asyncio.ensure_future(anext(feeds.watch("", 1, no_history)))
    await asyncio.wait([watching], timeout=0)
    feeds.close(StoreReplaced("another one"))
    feeds.close()
    with pytest.raises(StoreReplaced, match="another one"):
        await watching
