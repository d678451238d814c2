from collections.abc import AsyncGenerator

from kedge.storage.etcd.changes import joined, store_event, whole_answers
from kedge.storage.etcd.messages import EtcdEvent, EtcdHeader, EtcdKeyValue, WatchAnswer
from kedge.storage.store import StoreEntry, StoreEvent

OLD = EtcdKeyValue(b"/a", 2, 2, 1, b"old")
NEW = EtcdKeyValue(b"/a", 2, 3, 2, b"new")
CREATED = EtcdEvent(False, OLD, None)


def answer(*events: EtcdEvent, is_fragment: bool = False) -> WatchAnswer:
    return WatchAnswer(EtcdHeader(1, 9), False, False, 0, "", is_fragment, list(events))


def test_events_have_the_entry_that_they_replaced() -> None:
    old = StoreEntry("/a", b"old", 2, 2)
    assert store_event(CREATED) == StoreEvent("put", old, None)
    assert store_event(EtcdEvent(False, NEW, OLD)) == StoreEvent(
        "put", StoreEntry("/a", b"new", 3, 2), old
    )
    deletion = EtcdEvent(True, EtcdKeyValue(b"/a", revision=4), OLD)
    assert store_event(deletion) == StoreEvent("delete", StoreEntry("/a", b"old", 4, 2), old)


def test_an_event_without_the_replaced_entry_is_lost_to_compaction() -> None:
    assert store_event(EtcdEvent(False, NEW, None)) is None
    assert store_event(EtcdEvent(True, EtcdKeyValue(b"/a", revision=4), None)) is None


def test_a_key_of_others_may_be_any_bytes() -> None:
    found = store_event(EtcdEvent(False, EtcdKeyValue(b"\xff", 2, 2, 1), None))
    assert found is not None
    assert found.entry.key == "\\xff"


async def test_fragments_are_one_answer() -> None:
    async def sent() -> AsyncGenerator[WatchAnswer, None]:
        yield answer(CREATED, is_fragment=True)
        yield answer(CREATED, is_fragment=True)
        yield answer(CREATED)
        yield answer(CREATED)

    joined = [each.events async for each in whole_answers(sent())]
    assert joined == [[CREATED] * 3, [CREATED]]


def test_all_events_of_a_revision_but_the_last_say_that_more_follow() -> None:
    events = [StoreEvent("put", StoreEntry("/a", b"", at, at), None) for at in (2, 3, 3, 3, 4, 4)]
    assert [event.more for event in joined(events)] == [False, True, True, False, True, False]
    assert joined([]) == []
