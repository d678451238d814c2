from collections import deque

from kedge.storage.compaction import take_outlived


def test_the_newest_note_that_is_old_enough_counts_and_later_ones_stay() -> None:
    notes = deque([(0.0, 5), (30.0, 9), (60.0, 12)])
    assert take_outlived(notes, 45.0) == 9
    assert list(notes) == [(60.0, 12)]
    assert take_outlived(notes, 45.0) == 0
