"""One program of a cluster, forked from its keeper."""

import contextlib
import gc
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kedge.cli.failure import Failure
from kedge.machinery.clock import SystemClock
from kedge.restarter.program import tail
from kedge.supervisor.kernel import libc

MOST_SAID: Final = 1 << 20
"""Bytes of the line that a program writes when it is ready."""
CHUNK: Final = 1 << 16

Work = Callable[[int, int], int]
"""Runs the program; gets the descriptors to announce readiness on and to wait for an address on,
and returns the exit code."""


class ForkedProgram:
    """A fork that runs one program. The kernel kills it when the keeper dies."""

    def __init__(self, name: str, log: Path, work: Work) -> None:
        self.name = name
        self._log = log
        self._said, ready = os.pipe()
        heard, self._tell = os.pipe()
        keeper = os.getpid()
        self.pid = os.fork()
        if not self.pid:
            os.close(self._said)
            os.close(self._tell)
            _become(keeper, log, lambda: work(ready, heard))
        os.close(ready)
        os.close(heard)
        self.handle = os.pidfd_open(self.pid)

    def tell(self, line: str) -> None:
        """Send the line that the program waits for."""
        # If it has died, the wait for its readiness finds out.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._tell, f"{line}\n".encode())
        os.close(self._tell)
        self._tell = -1

    def line(self, deadline: float, hung_up: int) -> bytes:
        """Return the line that the program writes when it is ready.

        Raises a Failure if it dies or is late, and ConnectionResetError if the test process closes
        the connection `hung_up`.
        """
        poll = select.poll()
        poll.register(self._said, select.POLLIN)
        poll.register(hung_up, select.POLLRDHUP)
        line = b""
        while not line.endswith(b"\n"):
            left = max(0.0, deadline - SystemClock().monotonic())
            events = dict(poll.poll(left * 1000))
            if not events:
                raise Failure(f"{self.name} was not ready in time. {self._last_words()}")
            if hung_up in events:
                raise ConnectionResetError("the test process has gone")
            piece = os.read(self._said, CHUNK)
            if not piece or len(line) > MOST_SAID:
                raise Failure(f"{self.name} ended before it was ready. {self._last_words()}")
            line += piece
        return line

    def kill(self) -> None:
        """End the program at once, and wait until it is gone."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.handle, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def _last_words(self) -> str:
        lines = tail(str(self._log), 0)
        explained = [each for each in lines if each.startswith("error: ")]
        words = explained[-1:] or lines
        return "The end of its log:\n" + "\n".join(f"  {each}" for each in words)


def _become(keeper: int, log: Path, work: Callable[[], int]) -> None:
    """Run the program in this fork; never returns."""
    code = 1
    try:
        libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(1)  # the keeper died before the kernel knew
        os.setsid()
        _redirect(log)
        gc.freeze()
        code = work()
    except Failure as failure:
        print(failure.said, file=sys.stderr, flush=True)
        code = failure.code
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _redirect(log: Path) -> None:
    said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.close(said)
