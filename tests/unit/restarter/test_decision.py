"""The decision about a server or an agent that ended."""

import signal

import pytest

from kedge.restarter.decision import (
    DO_NOT_TRY_AGAIN,
    LONGEST_DELAY_SECONDS,
    MOST_FAILED_STARTS,
    RUNS_ALREADY,
    STEADY_SECONDS,
    TRY_LATER,
    Failures,
    ProgramEnd,
    RestartDecision,
    decide,
    explain,
)

KILLED = ProgramEnd(-signal.SIGKILL, ready_seconds=1.0)
NEVER_READY = ProgramEnd(1, ready_seconds=None)


def delays(ending: ProgramEnd, times: int) -> list[float | None]:
    """Return the decisions about a sequence of ends."""
    failures, found = Failures(), []
    for _ in range(times):
        verdict = decide(failures, ending)
        failures = verdict.failures
        found.append(verdict.delay)
    return found


def test_what_was_ready_is_started_again_at_once_and_then_ever_later_but_never_given_up() -> None:
    assert delays(KILLED, 10) == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert delays(KILLED, 1000)[-1] == LONGEST_DELAY_SECONDS


def test_what_was_ready_for_a_while_begins_anew() -> None:
    before = Failures(ends=6, failed_starts=3)
    assert decide(before, ProgramEnd(-9, STEADY_SECONDS)) == RestartDecision(Failures(1, 0), 0.0)
    assert decide(before, ProgramEnd(-9, STEADY_SECONDS - 1)) == RestartDecision(
        Failures(7, 0), 32.0
    )


def test_what_never_becomes_ready_is_given_up_after_some_attempts() -> None:
    found = delays(NEVER_READY, MOST_FAILED_STARTS)
    assert found == [0, 1, 2, 4, 8, 16, 32, None]
    last = decide(Failures(7, MOST_FAILED_STARTS - 1), NEVER_READY)
    assert last.why == f"{MOST_FAILED_STARTS} starts in a row have failed"


def test_one_readiness_in_between_and_the_count_of_failed_starts_begins_anew() -> None:
    assert decide(Failures(7, 7), KILLED) == RestartDecision(Failures(8, 0), 60.0)


@pytest.mark.parametrize("code", [TRY_LATER, RUNS_ALREADY])
def test_what_lacks_something_for_the_moment_is_never_given_up(code: int) -> None:
    assert None not in delays(ProgramEnd(code, ready_seconds=None), 100)


@pytest.mark.parametrize("ready", [None, 1.0, 1000.0])
def test_what_cannot_start_before_somebody_mends_it_is_given_up_at_once(ready: float) -> None:
    verdict = decide(Failures(), ProgramEnd(DO_NOT_TRY_AGAIN, ready))
    assert verdict.delay is None
    assert verdict.why == "its exit code says that a restart would fail too"


@pytest.mark.parametrize(
    ("status", "out_of_memory", "lines", "said"),
    [
        (-9, False, ["a line"], "was killed by signal 9 (SIGKILL)"),
        (
            -9,
            True,
            [],
            "was killed by signal 9 (SIGKILL), perhaps by the kernel because memory had run out",
        ),
        (-11, True, [], "was killed by signal 11 (SIGSEGV)"),
        (-99, False, [], "was killed by signal 99"),
        (0, False, ["goodbye"], "ended with exit code 0"),
        (1, False, ["Traceback", "ValueError: no", " "], "ended with exit code 1: ValueError: no"),
        (
            78,
            False,
            ["error: the store is damaged"],
            "ended with exit code 78: the store is damaged",
        ),
        (1, False, [], "ended with exit code 1"),
        (1, False, ["\x1b[31mred\0"], "ended with exit code 1:  [31mred "),
        (1, False, ["x" * 1000], f"ended with exit code 1: {'x' * 200}"),
        (
            None,
            True,
            ["a line"],
            "ended; its exit status is not known, because another process had started it",
        ),
    ],
)
def test_an_end_is_explained(
    status: int | None, out_of_memory: bool, lines: list[str], said: str
) -> None:
    assert explain(status, out_of_memory=out_of_memory, lines=lines) == said
