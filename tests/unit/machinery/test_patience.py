import pytest

from kedge.machinery import patience


def test_there_is_no_limit_outside_of_the_event_loop() -> None:
    assert patience.left() is None
    patience.spend(10**9)


def test_the_event_loop_waits_for_a_bounded_amount_of_work() -> None:
    with patience.on_event_loop():
        patience.spend(patience.LOOP_PATIENCE)
        assert patience.left() == 0
        with pytest.raises(patience.PatienceError):
            patience.spend(1)
    assert patience.left() is None


def test_a_call_on_the_event_loop_is_limited_too() -> None:
    def work(cost: int) -> int | None:
        patience.spend(cost)
        return patience.left()

    assert patience.call_on_event_loop(work, 1) == patience.LOOP_PATIENCE - 1
    with pytest.raises(patience.PatienceError):
        patience.call_on_event_loop(work, patience.LOOP_PATIENCE + 1)
    assert patience.left() is None
