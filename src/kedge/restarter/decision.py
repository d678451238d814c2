"""What follows the end of a program: whether it is started again, how soon, and what is said of it.

Pure: the process that acts on it is `restarter.py`.
"""

import signal
from collections.abc import Sequence
from typing import Final, NamedTuple

TRY_LATER: Final = 75
"""Exit code of a program that could not start for now: a port in use, a full disk. EX_TEMPFAIL of
sysexits.h."""
RUNS_ALREADY: Final = 73
"""Exit code of a program that found another process in its place."""
DO_NOT_TRY_AGAIN: Final = 78
"""Exit code of a program that cannot start before somebody has mended something: its configuration,
damaged files. EX_CONFIG of sysexits.h."""

STEADY_SECONDS: Final = 60.0
"""A program that was ready for so long is well: what went wrong before no longer counts."""
LONGEST_DELAY_SECONDS: Final = 60.0
MOST_FAILED_STARTS: Final = 8
"""Starts in a row that never became ready, before the program is given up."""
_LONGEST_LINE: Final = 200


class Ending(NamedTuple):
    """How a program ended."""

    status: int | None
    """The exit code, or the negative number of the signal; None if it is not known, because
    another process had started the program."""
    ready_seconds: float | None
    """For how long the program had been ready; None if it never was."""


class Failures(NamedTuple):
    """What went wrong with a program of late."""

    ends: int = 0
    """Ends in a row with less than STEADY_SECONDS of readiness before each."""
    failed_starts: int = 0
    """How many of the last starts in a row never became ready."""


class Verdict(NamedTuple):
    """What is done about an end."""

    failures: Failures
    delay: float | None
    """Seconds until the program is started again; None if it is given up."""
    why: str = ""
    """Why it is given up."""


def decide(failures: Failures, ending: Ending) -> Verdict:
    """Whether and when a program that has ended is started again.

    A program that had been ready is never given up, as the kubelet never gives up a container: the
    next failure may have passed in a minute, and nothing else brings the cluster back. The first
    start follows at once, the next after 1, 2, 4 ... seconds. A program that never becomes ready is
    given up after some attempts, because each of them costs the machine a start, and one that says
    itself that the next attempt would end in the same way is given up at once.
    """
    if ending.ready_seconds is not None and ending.ready_seconds >= STEADY_SECONDS:
        failures = Failures()
    failed_starts = failures.failed_starts + 1 if ending.ready_seconds is None else 0
    counted = Failures(failures.ends + 1, failed_starts)
    if ending.status == DO_NOT_TRY_AGAIN:
        return Verdict(counted, None, "it says that another attempt would end in the same way")
    if ending.status not in (TRY_LATER, RUNS_ALREADY) and failed_starts >= MOST_FAILED_STARTS:
        return Verdict(counted, None, f"{failed_starts} starts in a row have failed")
    return Verdict(counted, delay_after(failures.ends))


def delay_after(ends: int) -> float:
    """Seconds to wait when there were that many ends before this one."""
    if ends == 0:
        return 0.0
    return min(2.0 ** min(ends - 1, 16), LONGEST_DELAY_SECONDS)


def explain(status: int | None, *, out_of_memory: bool, lines: Sequence[str]) -> str:
    """How a program ended, for a person: "was killed by signal 9 (SIGKILL)".

    `out_of_memory` says that the kernel has killed something for lack of memory meanwhile, `lines`
    are the last ones of the program's log.
    """
    if status is None:
        return "ended; its exit status is not known, because another process had started it"
    if status < 0:
        said = f"was killed by signal {-status}{_name(-status)}"
        if out_of_memory and -status == signal.SIGKILL:
            said += ", perhaps by the kernel because memory had run out"
        return said
    said = f"ended with exit code {status}"
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    if not status or not last:
        return said
    # A log may hold anything; a reason goes to terminals and into the environment of programs.
    plain = "".join(each if each.isprintable() else " " for each in last)
    return f"{said}: {plain.removeprefix('error: ')[:_LONGEST_LINE]}"


def _name(number: int) -> str:
    try:
        return f" ({signal.Signals(number).name})"
    except ValueError:
        return ""
