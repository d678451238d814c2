"""Programs that start in the background, outlive their starter and report when they are ready.

Their parent is `kedge.restarter`, which also outlives the starter and restarts them when they
die. It begins as a fork of this process, starts the programs, and then replaces itself by a
small interpreter with execve(2), which keeps its children. So the start does not wait for the
small interpreter, and the interpreter gets the exit status of each program.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

import kedge
from kedge.cli.cluster import process
from kedge.cli.cluster.process import Process
from kedge.cli.failure import AlreadyRunning, Failure
from kedge.machinery.clock import SystemClock
from kedge.restarter.decision import RUNS_ALREADY
from kedge.restarter.program import REASON_VARIABLE, Pipes, Program, make_room, spawn, tail
from kedge.restarter.restarter import PART

_START: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from kedge.restarter.restarter import main; main(*sys.argv[2:])"
)
_PACKAGES: Final = str(Path(kedge.__file__).parents[1])
_ANSWER_SECONDS: Final = 10.0
"""How long the parent of the programs may take to answer, or to exit."""
_PAUSE: Final = 0.01


class ProgramSpec(NamedTuple):
    """One program of the cluster, as its parent gets it."""

    name: str
    what: str
    arguments: Sequence[str]
    """How it is restarted; empty if it is not."""
    flags: Sequence[str]
    """The command and its flags among the arguments."""
    log: str
    told: str = ""
    line: str = ""
    """The line that it waits for at its start."""
    restarts: int = 0
    reason: str = ""
    ended: float = 0.0


class Child:
    """A program that was started."""

    def __init__(self, name: str, program: Program, launch: "Launch") -> None:
        self._name = name
        self._program = program
        self._launch = launch
        self._began = make_room(program.log)
        self._said, ready = os.pipe()
        heard = self._tell = -1
        if program.told:
            heard, self._tell = os.pipe()
        self.pipes = Pipes(ready, heard)

    def tell(self, line: str) -> None:
        """Say the one thing that it waits for."""
        # One that has died meanwhile is found out when its answer is waited for.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._tell, f"{line}\n".encode())
        self._hang_up()

    def line(self, patience: float) -> bytes:
        """Return the line that the program writes when it is ready."""
        what, log = self._program.what, self._program.log
        try:
            line = _read_line(self._said, patience)
        except TimeoutError:
            raise Failure(
                f"{what} was not ready within {patience:g} s: {log} may say why; allow more"
                " time with --wait"
            ) from None
        if not line:
            raise self._died(self._launch.status(self._name))
        return line

    def _died(self, code: int | None) -> Failure:
        """Why it is no more: its own explanation, else its last words."""
        log = self._program.log
        lines = tail(log, self._began)
        explained = [line for line in lines if line.startswith("error: ")]
        kind = AlreadyRunning if code == RUNS_ALREADY else Failure
        if explained:
            return kind(explained[-1].removeprefix("error: "))
        how = f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
        words = "\n".join(f"  {line}" for line in lines) or "  (its log is empty)"
        return Failure(
            f"{self._program.what} ended {how} before it was ready. The end of {log}:\n{words}"
        )

    def let_go(self) -> None:
        """The program outlives this process."""
        self._hang_up()
        os.close(self._said)

    def _hang_up(self) -> None:
        """Close the pipe to the program, which then stops waiting for a line."""
        if self._tell >= 0:
            os.close(self._tell)
            self._tell = -1


class Launch:
    """Programs that were started together, and the process that is their parent."""

    def __init__(
        self, directory: Path, programs: Mapping[str, Program], adopted: Mapping[str, Process]
    ) -> None:
        """`adopted` are processes that run already and are to be watched as well."""
        self._directory = directory
        self._control, theirs = socket.socketpair()
        self._received = b""
        self._ended: dict[str, int | None] = {}
        self.children = {name: Child(name, each, self) for name, each in programs.items()}
        self._pid = os.fork()
        if not self._pid:
            pipes = {name: child.pipes for name, child in self.children.items()}
            _become_parent(directory, theirs, programs, pipes, adopted)
        theirs.close()
        for child in self.children.values():
            child.pipes.close()

    def status(self, name: str) -> int | None:
        """The exit code of a program that has ended; None if it cannot be known."""
        deadline = SystemClock().monotonic() + _ANSWER_SECONDS
        while name not in self._ended:
            answer = self._answer(deadline)
            if answer is None:
                return None
            _raise_failure(answer)
            self._ended[answer["name"]] = answer["status"]
        return self._ended[name]

    def _answer(self, deadline: float) -> "dict[str, Any] | None":
        """Return the next message of the parent; None at the end."""
        while b"\n" not in self._received:
            self._control.settimeout(max(0.01, deadline - SystemClock().monotonic()))
            try:
                data = self._control.recv(1 << 16)
            except OSError:
                return None
            if not data:
                return None
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def keep(self, parts: Sequence[ProgramSpec], policy: str) -> None:
        """Keep the programs: from now on their parent restarts them, if the policy is "always"."""
        go = {"policy": policy, "parts": [each._asdict() for each in parts]}
        with contextlib.suppress(OSError):
            self._control.sendall(json.dumps(go).encode() + b"\n")
        deadline = SystemClock().monotonic() + _ANSWER_SECONDS
        while (answer := self._answer(deadline)) is not None:
            _raise_failure(answer)
            if answer.get("kept"):
                return
        raise Failure(
            "the process that starts the others again when they die has ended, or does not answer:"
            f" {self._directory / PART}.log may say why; 'kedge up' starts another one"
        )

    def end(self) -> None:
        """End the programs and their parent, by closing the connection to it."""
        self._control.close()
        for _ in range(round(2 * _ANSWER_SECONDS / _PAUSE)):
            if os.waitpid(self._pid, os.WNOHANG)[0]:
                return
            time.sleep(_PAUSE)  # noqa: TID251 - no event loop runs here
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)

    def let_go(self) -> None:
        for child in self.children.values():
            child.let_go()
        self._control.close()


def _raise_failure(answer: Mapping[str, Any]) -> None:
    """Raise the error in the parent's message if it could not start the programs."""
    if "failed" in answer:
        kind = AlreadyRunning if answer["code"] == RUNS_ALREADY else Failure
        raise kind(answer["failed"])


@contextlib.contextmanager
def launching(
    directory: Path,
    programs: Mapping[str, Program],
    adopted: Mapping[str, Process] | None = None,
) -> Iterator[Launch]:
    """Start programs together: if one of them fails, all of them are ended."""
    launch = Launch(directory, programs, adopted or {})
    try:
        yield launch
    except BaseException:
        for child in launch.children.values():
            child.let_go()
        launch.end()
        raise
    launch.let_go()


def _become_parent(
    directory: Path,
    control: socket.socket,
    programs: Mapping[str, Program],
    pipes: Mapping[str, Pipes],
    adopted: Mapping[str, Process],
) -> NoReturn:
    """Start the programs and become their parent; runs in a fork of this process."""
    try:
        os.setsid()
        claim = process.claim(directory, PART)
        kept = {control.fileno(), claim, *(fd for each in pipes.values() for fd in each if fd >= 0)}
        _close_all_but(kept)
        _redirect(directory / f"{PART}.log")
        environment = _environment()
        parts = [
            f"{name}:{spawn(program, pipes[name], environment)}"
            for name, program in programs.items()
        ]
        parts += [f"{name}:{each.pid}:{each.birth}" for name, each in adopted.items()]
        for descriptor in (control.fileno(), claim):
            os.set_inheritable(descriptor, True)
        given = [str(directory), str(control.fileno()), str(claim), *parts]
        isolated = [sys.executable, "-I", "-S", "-X", "utf8", "-c", _START, _PACKAGES]
        os.execve(sys.executable, [*isolated, *given], environment)
    except BaseException as error:
        code = error.code if isinstance(error, Failure) else 1
        said = {"failed": str(error), "code": code}
        with contextlib.suppress(OSError):
            control.sendall(json.dumps(said).encode() + b"\n")
    finally:
        os._exit(1)


def _close_all_but(kept: set[int]) -> None:
    """Close descriptors inherited from the caller of `kedge up`, such as a lock that would never
    be released."""
    begin = 3
    for descriptor in sorted(kept):
        os.closerange(begin, descriptor)
        begin = descriptor + 1
    os.closerange(begin, max(begin, 1 << 20))


def _redirect(log: Path) -> None:
    make_room(str(log))
    null = os.open("/dev/null", os.O_RDWR)
    said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    for number, descriptor in enumerate((null, said, said)):
        os.dup2(descriptor, number)
    os.close(null)
    os.close(said)


def _environment() -> dict[str, str]:
    """Return the environment of the programs; it also works for a restart from another
    directory."""
    environment = {name: value for name, value in os.environ.items() if name != REASON_VARIABLE}
    if paths := environment.get("PYTHONPATH"):
        absolute = [os.path.abspath(each) for each in paths.split(os.pathsep)]
        environment["PYTHONPATH"] = os.pathsep.join(absolute)
    return environment


_LONGEST_POLL_MILLISECONDS: Final = 2**31 - 1


def _read_line(descriptor: int, patience: float) -> bytes:
    """Read one line from a pipe; empty if the other end closes it."""
    clock = SystemClock()
    # Unlike select(2), poll(2) takes descriptors above 1023.
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    deadline = clock.monotonic() + patience
    line = b""
    while not line.endswith(b"\n"):
        left = max(0.0, deadline - clock.monotonic())
        if not poll.poll(min(left * 1000, _LONGEST_POLL_MILLISECONDS)):
            raise TimeoutError
        part = os.read(descriptor, 65536)
        if not part:
            return b""
        line += part
    return line
