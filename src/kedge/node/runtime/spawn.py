"""Starts a supervisor, and finds a running one. Imports almost nothing, so that an agent can start
the supervisor before its other imports."""

import contextlib
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kedge.supervisor import interpreter, sockets

_START: Final = (
    "import sys; sys.path.insert(0, sys.argv[2]); "
    "from kedge.supervisor.__main__ import main; main(sys.argv[1])"
)
_START_SECONDS: Final = 20.0
"""Seconds until a supervisor listens; it first cleans up after the previous one."""
_PACKAGES: Final = str(Path(__file__).parents[3])
_OPEN_FILES: Final = resource.getrlimit(resource.RLIMIT_NOFILE)
"""The limits of open files before this process raised its own. Containers get these: programs that
use select(), or close every possible descriptor, fail with a million."""


class SupervisorStart:
    """A starting supervisor. It detaches from this process."""

    def __init__(self, directory: Path) -> None:
        self._log = directory / "supervisor.log"
        isolated: Sequence[str] = (sys.executable, "-I", "-S", "-X", "utf8", "-c", _START)
        copy = interpreter.sealed()
        try:
            self._process = subprocess.Popen(
                [*isolated, str(directory), _PACKAGES],
                executable=f"/proc/self/fd/{copy}",
                pass_fds=[copy],
                env=interpreter.environment(),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        finally:
            os.close(copy)
        self._failure: str | None = None
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE, _OPEN_FILES)

    def failure(self) -> str:
        """Wait until the supervisor listens; return the error, or an empty text."""
        if self._failure is None:
            self._failure = self._wait()
        return self._failure

    def _wait(self) -> str:
        try:
            _, said = self._process.communicate(timeout=_START_SECONDS)
        except subprocess.TimeoutExpired:
            # SIGKILL also ends a stopped process (SIGSTOP), and releases its lock.
            self._process.kill()
            self._process.communicate()
            return f"it did not listen within {_START_SECONDS:g} s; {_log_end(self._log)}"
        if self._process.returncode == 0:
            return ""
        return said.strip() or _log_end(self._log)


def begin(directory: Path) -> SupervisorStart | None:
    """Start the supervisor of a directory; return None if it runs already."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = connected(directory)
    if found is None:
        return SupervisorStart(directory)
    found.close()
    return None


def connected(directory: Path) -> socket.socket | None:
    """Return a connection to the supervisor of a directory; None if it does not run."""
    return sockets.connected(str(directory))


def supervisor(directory: Path) -> int:
    """Return the pid of the supervisor that listens in a directory; 0 if there is none."""
    return sockets.supervisor(str(directory))


def _log_end(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines else "its log is empty"
