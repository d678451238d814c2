"""Steps share the turns of the event loop, also those that wait again."""

from kedge.machinery.turns import StepTurns
from kedge.testing.clock import BusyClock

STEP = 0.002
SHARE = 0.01


class LongStep:
    """A step that waits again until it was done so often."""

    def __init__(self, turns: StepTurns, clock: BusyClock, times: int) -> None:
        self._turns = turns
        self._clock = clock
        self.left = times

    def advance(self) -> None:
        self._clock.spend(STEP)
        self.left -= 1
        if self.left:
            self._turns.wait(self)


class BrokenStep:
    def advance(self) -> None:
        raise ValueError("a defect")


async def test_steps_that_wait_again_do_not_fill_one_turn() -> None:
    clock = BusyClock()
    turns = StepTurns(clock.monotonic, SHARE)
    steps = [LongStep(turns, clock, 20) for _ in range(3)]
    for step in steps:
        turns.wait(step)
    assert not turns.is_free()
    await clock.observe(lambda: not turns.waiting)
    assert [step.left for step in steps] == [0, 0, 0]
    assert max(clock.slices) <= SHARE + 2 * STEP


async def test_a_step_that_fails_does_not_stop_the_others() -> None:
    clock = BusyClock()
    turns = StepTurns(clock.monotonic, SHARE)
    step = LongStep(turns, clock, 1)
    turns.wait(BrokenStep())
    turns.wait(step)
    await clock.observe(lambda: not turns.waiting)
    assert step.left == 0


async def test_the_share_of_a_turn_is_spent_once() -> None:
    clock = BusyClock()
    turns = StepTurns(clock.monotonic, SHARE)
    assert turns.is_free()
    clock.spend(SHARE)
    assert not turns.is_free()
