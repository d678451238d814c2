"""Starts a supervisor, and finds a running one. Imports almost nothing, so that an agent can start
the supervisor before its other imports."""

import contextlib
import os
import resource
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from kedge.supervisor import interpreter, wire

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
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE, _OPEN_FILES)

    def failure(self) -> str:
        """Wait until the supervisor listens; return the error, or an empty text."""
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
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with _opened(directory) as descriptor:
            made.connect(wire.address(descriptor))
    except (FileNotFoundError, ConnectionRefusedError):
        made.close()
        return None
    except OSError:
        made.close()
        raise
    return made


def supervisor(directory: Path) -> int:
    """Return the pid of the supervisor that listens in a directory; 0 if there is none.

    The kernel stores the listener's pid with the socket (SO_PEERCRED in unix(7)), so this also
    works for a stopped process.
    """
    found = connected(directory)
    if found is None:
        return 0
    with found:
        size = struct.calcsize("3i")
        credentials = found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return int(struct.unpack("3i", credentials)[0])


@contextlib.contextmanager
def _opened(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _log_end(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines else "its log is empty"
