"""A real PostgreSQL for tests and benchmarks, in a directory of its own, on loopback and a socket.

PostgreSQL refuses to run as root: root runs it as an ordinary user.
"""

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from kedge.settings.postgresql import PostgresAddress, PostgresHost
from kedge.testing.etcd_process import free_port

START_SECONDS: Final = 30.0
USER: Final = "kedge"
DATABASE: Final = "clusters"
_POLL_SECONDS: Final = 0.005
_PLACES: Final = ("/usr/lib/postgresql", "/usr/pgsql-*")


class PostgresMissing(Exception):
    """The machine has no PostgreSQL."""

    def __init__(self) -> None:
        super().__init__('no PostgreSQL here: run "tools/setup postgresql" (Debian: postgresql)')


class PostgresProcess:
    """One server; it can be killed and started again with its data."""

    def __init__(self, directory: Path, *settings: str) -> None:
        """`settings` are of the form NAME=VALUE."""
        self.directory = directory
        self.settings = settings
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.schema = "kedge"
        self._schemas = itertools.count(1)
        _give(directory)

    @classmethod
    def throwaway(cls, *settings: str) -> Self:
        """Start an empty server that does not wait for the disk."""
        server = cls(Path(tempfile.mkdtemp(prefix="kedge-postgresql-")), "fsync=off", *settings)
        server.create()
        server.start()
        return server

    @property
    def host(self) -> PostgresHost:
        return PostgresHost("127.0.0.1", self.port)

    @property
    def address(self) -> PostgresAddress:
        return PostgresAddress((self.host,), USER, DATABASE, self.schema)

    def new_address(self) -> PostgresAddress:
        """Return the address of a schema that does not exist yet, which is the default now."""
        self.schema = f"t{next(self._schemas)}"
        return self.address

    @property
    def url(self) -> str:
        """The value of --store."""
        return f"postgresql://{USER}@{self.host}/{DATABASE}/{self.schema}"

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def create(self) -> None:
        """Make the files of an empty database."""
        self._run(
            "initdb",
            *("-D", str(self.data), "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "-N"),
        )

    def start(self) -> None:
        """Start, and wait until requests are answered."""
        self.spawn()
        self.wait()
        if "1" not in self.query(
            f"SELECT count(*) FROM pg_database WHERE datname = '{DATABASE}'", database="postgres"
        ):
            self.query(f"CREATE DATABASE {DATABASE}", database="postgres")

    def spawn(self) -> None:
        """Start without waiting."""
        settings = (
            "listen_addresses=127.0.0.1",
            f"port={self.port}",
            f"unix_socket_directories={self.directory}",
            "max_connections=50",
            "shared_buffers=32MB",
            *self.settings,
        )
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*_as_user(), program("postgres"), "-D", str(self.data), *_flags(settings)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
            )

    def wait(self) -> None:
        """Wait until requests are answered."""
        assert self.process is not None
        deadline = time.perf_counter() + START_SECONDS
        while not self._answers():
            if self.process.poll() is not None or time.perf_counter() > deadline:
                log = (self.directory / "log").read_text()
                raise RuntimeError(f"PostgreSQL did not start: {log[-2000:]}")
            # A process is waited for in real time.
            time.sleep(_POLL_SECONDS)  # noqa: TID251

    def _answers(self) -> bool:
        asked = [program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(asked, check=False).returncode == 0

    def query(self, statement: str, *, database: str = DATABASE) -> str:
        """Run a statement as the owner of everything; returns its rows as text."""
        return self._run(
            "psql",
            *(
                "-X",
                "-A",
                "-t",
                "-v",
                "ON_ERROR_STOP=1",
                "-h",
                str(self.directory),
                "-p",
                str(self.port),
            ),
            *("-U", USER, "-d", database, "-c", statement),
        ).strip()

    def kill(self) -> None:
        """Kill all processes of the server; its data stay."""
        if self.process is None:
            return
        processes = [self.process.pid, *self._children()]
        for pid in processes:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        # A server does not start beside the processes of one before.
        for pid in processes[1:]:
            while _is_alive(pid):
                time.sleep(_POLL_SECONDS)  # noqa: TID251
        self.process = None

    def reload(self) -> None:
        """Have the settings read again; new ones hold for connections from now on."""
        assert self.process is not None
        log = self.directory / "log"
        seen = log.stat().st_size
        self.process.send_signal(signal.SIGHUP)
        while b"reloading configuration files" not in log.read_bytes()[seen:]:
            time.sleep(_POLL_SECONDS)  # noqa: TID251
        time.sleep(0.1)  # noqa: TID251

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def remove(self) -> None:
        """Kill the server and delete its data."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def standby(self, directory: Path) -> "PostgresProcess":
        """Copy the files to those of a standby, which is not started yet."""
        copy = type(self)(directory, *self.settings)
        self._run(
            "pg_basebackup",
            *("-h", "127.0.0.1", "-p", str(self.port), "-U", USER, "-D", str(copy.data)),
            *("-R", "-X", "stream", "-c", "fast", "--no-sync"),
        )
        return copy

    def promote(self) -> None:
        """Make a standby the primary server."""
        self.query("SELECT pg_promote()", database="postgres")

    def _run(self, name: str, *arguments: str) -> str:
        done = subprocess.run(
            [*_as_user(), program(name), *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.directory,
        )
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stderr[-2000:]}")
        return done.stdout

    def _children(self) -> list[int]:
        assert self.process is not None
        pid = self.process.pid
        try:
            text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        except FileNotFoundError:
            return []
        return [int(child) for child in text.split()]

    def _signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        for pid in (self.process.pid, *self._children()):
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def program(name: str) -> str:
    """Return the path of a program of PostgreSQL; Debian keeps those of servers off the PATH."""
    found = shutil.which(name) or next(_beside(name), None)
    if found is None:
        raise PostgresMissing
    return found


def _beside(name: str) -> Iterator[str]:
    for place in _PLACES:
        folder = Path(place)
        for path in sorted(folder.parent.glob(f"{folder.name}/**/bin/{name}"), reverse=True):
            if os.access(path, os.X_OK):
                yield str(path)


def _as_user() -> Sequence[str]:
    if os.geteuid() != 0:
        return ()
    nobody = pwd.getpwnam("nobody")
    return (
        *("setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"),
        *("env", "HOME=/nonexistent"),
    )


def _give(directory: Path) -> None:
    """Let the user of the server write to a directory, and reach it."""
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(directory, nobody.pw_uid, nobody.pw_gid)


def _flags(settings: Sequence[str]) -> Iterator[str]:
    for setting in settings:
        yield from ("-c", setting)


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
