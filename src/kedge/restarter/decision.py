"""Decides whether and when a program that ended is restarted, and words the reason.

Pure; `restarter.py` acts on it.
"""

import signal
from collections.abc import Sequence
from typing import Final, NamedTuple

TRY_LATER: Final = 75
"""Exit code of a program that could not start for now: a port in use, a full disk. EX_TEMPFAIL of
sysexits.h."""
RUNS_ALREADY: Final = 73
"""Exit code of a program that is already running in another process."""
DO_NOT_TRY_AGAIN: Final = 78
"""Exit code of a program that cannot start until a repair: wrong configuration, damaged files.
EX_CONFIG of sysexits.h."""

STEADY_SECONDS: Final = 60.0
"""After so many seconds of readiness, earlier failures no longer count."""
LONGEST_DELAY_SECONDS: Final = 60.0
MOST_FAILED_STARTS: Final = 8
"""Starts in a row that never became ready, before the program is given up."""
_LONGEST_LINE: Final = 200


class ProgramEnd(NamedTuple):
    """The end of a program: its status, and how long it had been ready."""

    status: int | None
    """The exit code, or the negative number of the signal; None if it is not known, because
    another process had started the program."""
    ready_seconds: float | None
    """For how long the program had been ready; None if it never was."""


class Failures(NamedTuple):
    """Recent failures of a program."""

    ends: int = 0
    """Ends in a row with less than STEADY_SECONDS of readiness before each."""
    failed_starts: int = 0
    """How many of the last starts in a row never became ready."""


class RestartDecision(NamedTuple):
    """The decision about a program that ended."""

    failures: Failures
    delay: float | None
    """Seconds until the program is restarted; None if it is given up."""
    why: str = ""
    """Why it is given up."""


def decide(failures: Failures, ending: ProgramEnd) -> RestartDecision:
    """Decide whether and when a program that ended is restarted.

    A program that was ready once is always restarted, as the kubelet does with containers: the
    cause may be temporary, and nothing else restarts the cluster. The first restart is
    immediate, the next ones follow after 1, 2, 4 ... seconds. A program that never becomes ready
    is given up after some attempts, because each attempt costs processor time. A program whose
    exit code says that a retry fails too is given up immediately.
    """
    if ending.ready_seconds is not None and ending.ready_seconds >= STEADY_SECONDS:
        failures = Failures()
    failed_starts = failures.failed_starts + 1 if ending.ready_seconds is None else 0
    counted = Failures(failures.ends + 1, failed_starts)
    if ending.status == DO_NOT_TRY_AGAIN:
        return RestartDecision(counted, None, "its exit code says that a restart would fail too")
    if ending.status not in (TRY_LATER, RUNS_ALREADY) and failed_starts >= MOST_FAILED_STARTS:
        return RestartDecision(counted, None, f"{failed_starts} starts in a row have failed")
    return RestartDecision(counted, delay_after(failures.ends))


def delay_after(ends: int) -> float:
    """Seconds to wait when there were that many ends before this one."""
    if ends == 0:
        return 0.0
    return min(2.0 ** min(ends - 1, 16), LONGEST_DELAY_SECONDS)


def explain(status: int | None, *, out_of_memory: bool, lines: Sequence[str]) -> str:
    """Describe how a program ended, such as "was killed by signal 9 (SIGKILL)".

    `out_of_memory` says that the kernel has killed a process for lack of memory meanwhile;
    `lines` are the last lines of the program's log.
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
