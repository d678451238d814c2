"""Programs that start in the background, outlive their starter and say when they are ready."""

import contextlib
import os
import select
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kedge.cli.failure import Failure
from kedge.machinery.clock import SystemClock

_LOG_LINES: Final = 10
_LOG_LIMIT: Final = 10 * 2**20


class Program(NamedTuple):
    """What is to run."""

    what: str
    """As it is called in complaints."""
    arguments: Sequence[str]
    log: Path
    told: str = ""
    """The flag that names a file descriptor on which it waits for a line; empty if it does not."""


class Child:
    """One that was started."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._began = _make_room(program.log)
        self._said, ready = os.pipe()
        passed = [ready]
        arguments = [*program.arguments, f"--ready-fd={ready}"]
        self._tell = -1
        if program.told:
            hear, self._tell = os.pipe()
            passed.append(hear)
            arguments.append(f"{program.told}={hear}")
        with open(program.log, "ab", opener=_private) as output:
            self._process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=passed,
                start_new_session=True,
            )
        for descriptor in passed:
            os.close(descriptor)

    def tell(self, line: str) -> None:
        """Say the one thing that it waits for."""
        # One that has died meanwhile is found out when its answer is waited for.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._tell, f"{line}\n".encode())
        self._hang_up()

    def line(self, patience: float) -> bytes:
        """What it says when it is ready."""
        what, log = self._program.what, self._program.log
        try:
            line = _read_line(self._said, patience)
        except TimeoutError:
            raise Failure(
                f"{what} was not ready within {patience:g} s: {log} may say why; allow more"
                " time with --wait"
            ) from None
        if not line:
            raise self._died(self._process.wait())
        return line

    def _died(self, code: int) -> Failure:
        """Why it is no more: its own explanation, else its last words."""
        log = self._program.log
        lines = log.read_bytes()[self._began :].decode(errors="replace").splitlines()
        explained = [line for line in lines[-_LOG_LINES:] if line.startswith("error: ")]
        if explained:
            return Failure(explained[-1].removeprefix("error: "))
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        words = "\n".join(f"  {line}" for line in lines[-_LOG_LINES:]) or "  (it said nothing)"
        return Failure(
            f"{self._program.what} ended {how} before it was ready. The end of {log}:\n{words}"
        )

    def end(self) -> None:
        self._hang_up()
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def let_go(self) -> None:
        """It outlives us: nothing is to wait for it, or to complain that nothing did."""
        if self._process.returncode is None:
            self._process.returncode = 0
        self._hang_up()
        os.close(self._said)

    def _hang_up(self) -> None:
        """Nothing more will be said, which whoever waits for it must learn."""
        if self._tell >= 0:
            os.close(self._tell)
            self._tell = -1


Launch = Callable[[Program], Child]


@contextlib.contextmanager
def launching() -> Iterator[Launch]:
    """Start programs that belong together: if anything fails in between, all of them end."""
    children: list[Child] = []

    def launch(program: Program) -> Child:
        child = Child(program)
        children.append(child)
        return child

    try:
        yield launch
    except BaseException:
        for child in children:
            child.end()
        raise
    finally:
        for child in children:
            child.let_go()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _make_room(log: Path) -> int:
    """Set a log that has grown large aside; returns how much there is of it."""
    size = log.stat().st_size if log.exists() else 0
    if size < _LOG_LIMIT:
        return size
    log.replace(log.with_name(f"{log.name}.1"))
    return 0


def _read_line(descriptor: int, patience: float) -> bytes:
    """What the other end of the pipe writes, up to the end of the line; empty if it hangs up."""
    clock = SystemClock()
    deadline = clock.monotonic() + patience
    line = b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - clock.monotonic()))
        if not ready:
            raise TimeoutError
        part = os.read(descriptor, 65536)
        if not part:
            return b""
        line += part
    return line
