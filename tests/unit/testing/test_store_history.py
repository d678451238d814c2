from kedge.storage.store import StoreEntry, StoreEvent
from kedge.testing.store_history import KEYS, StoreOperation, violations, watch_violations

KEY = KEYS[0]


def put(revision: int, value: bytes, previous: StoreEvent | None = None) -> StoreEvent:
    before = previous.entry if previous else None
    return StoreEvent("put", StoreEntry(KEY, value, revision, 2), before)


FIRST = put(2, b"one")
SECOND = put(3, b"two", FIRST)
ONE = StoreOperation(0, 1, "put", KEY, "ok", 0, b"one", 2)
TWO = StoreOperation(2, 3, "put", KEY, "ok", 2, b"two", 3)


def test_writes_and_reads_in_order_are_fine() -> None:
    reads = [
        StoreOperation(1.5, 1.6, "get", KEY, "ok", revision=2, value=b"one"),
        # While the second write is under way, both values are right.
        StoreOperation(2.1, 2.9, "get", KEY, "ok", revision=2, value=b"one"),
        StoreOperation(2.1, 2.9, "get", KEY, "ok", revision=3, value=b"two"),
        StoreOperation(0.1, 0.2, "get", KEY, "ok", revision=0),
    ]
    assert list(violations([ONE, TWO, *reads], [FIRST, SECOND])) == []


def test_a_stale_read_is_found() -> None:
    stale = StoreOperation(4, 5, "get", KEY, "ok", revision=2, value=b"one")
    absent = StoreOperation(4, 5, "get", KEY, "ok", revision=0)
    assert len(list(violations([ONE, TWO, stale, absent], [FIRST, SECOND]))) == 2


def test_a_read_of_the_future_is_found() -> None:
    early = StoreOperation(0.5, 1.5, "get", KEY, "ok", revision=3, value=b"two")
    assert list(violations([ONE, TWO, early], [FIRST, SECOND])) != []


def test_a_lost_acknowledged_write_is_found() -> None:
    assert "lost" in next(violations([ONE, TWO], [FIRST]))


def test_a_write_that_happened_twice_or_after_a_refusal_is_found() -> None:
    again = put(4, b"one", SECOND)
    assert any("2 times" in each for each in violations([ONE, TWO], [FIRST, SECOND, again]))
    refused = TWO._replace(outcome="conflict")
    assert any("refused" in each for each in violations([ONE, refused], [FIRST, SECOND]))
    assert list(violations([ONE, TWO._replace(outcome="unknown")], [FIRST, SECOND])) == []


def test_a_deletion_is_that_of_one_client_unless_the_store_cannot_tell() -> None:
    gone = StoreEvent("delete", StoreEntry(KEY, b"one", 3, 2), FIRST.entry)
    # The first one is of the API, whose answer does not tell the revision.
    deletions = [
        StoreOperation(2, 4, "delete", KEY, "ok", 2, revision=revision) for revision in (0, 3)
    ]
    assert list(violations([ONE, deletions[0]], [FIRST, gone])) == []
    assert ["2 clients" in each for each in violations([ONE, *deletions], [FIRST, gone])] == [True]
    assert list(violations([ONE, *deletions], [FIRST, gone], shares_deletions=True)) == []
    assert any("is lost" in each for each in violations([ONE, *deletions], [FIRST]))
    # They must have been under way at the same time.
    late = deletions[0]._replace(begin=4.5, end=5)
    found = list(violations([ONE, late, deletions[1]], [FIRST, gone], shares_deletions=True))
    assert found == [f"the delete of {KEY} at 2: revision 3 was given out after 3 had been"]


def test_a_write_that_replaced_another_revision_is_found() -> None:
    assert any(
        "replaced 2" in each for each in violations([ONE, TWO._replace(expect=1)], [FIRST, SECOND])
    )


def test_a_revision_against_real_time_is_found() -> None:
    late = ONE._replace(begin=4, end=5)
    assert any("was given out after" in each for each in violations([late, TWO], [FIRST, SECOND]))


def test_gaps_and_repetitions_of_a_watch_are_found() -> None:
    assert list(watch_violations([FIRST, SECOND], [FIRST, SECOND])) == []
    assert list(watch_violations([SECOND], [FIRST, SECOND])) != []
    assert list(watch_violations([FIRST], [FIRST, SECOND])) != []
    assert list(watch_violations([FIRST, FIRST, SECOND], [FIRST, SECOND])) != []
