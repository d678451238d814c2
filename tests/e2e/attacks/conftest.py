"""A server to attack, another user of the machine, and disks that are small enough to fill."""

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import kedge
from kedge.cli import process

NOBODY = 65534
USUAL_OPEN_FILES = 1024
"""The soft limit of an ordinary login."""
SYSTEM_PYTHON = "/usr/bin/python3"
NEEDS_ROOT = "to become another user and to mount takes root and setpriv"

Outcome = subprocess.CompletedProcess[str]


class User:
    """Somebody with a home of their own, who runs kedge and kubectl: root, or a user without
    rights."""

    def __init__(self, home: Path, uid: int) -> None:
        self.home = home
        self.uid = uid
        packages = [str(Path(kedge.__file__).parents[1])]
        packages += [path for path in sys.path if "site-packages" in path]
        self.environment = {
            "HOME": str(home),
            "XDG_STATE_HOME": str(home / "states"),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(packages),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.become = (
            ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"] if uid else []
        )
        self.python = self._interpreter()

    def _interpreter(self) -> str:
        # Only who is that user already sees what they may run.
        question = "import os, sys, msgspec; print(os.access(sys.executable, os.X_OK), sys.version)"
        for python in (sys.executable, SYSTEM_PYTHON):
            minor = ".".join(map(str, sys.version_info[:2]))
            if self.run(python, "-c", question).stdout.startswith(f"True {minor}."):
                return python
        pytest.skip("no Python that another user may run")

    def run(self, *words: str, input: str | None = None) -> Outcome:
        return subprocess.run(
            [*self.become, *words],
            env=self.environment,
            input=input,
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def kedge(self, *arguments: str) -> Outcome:
        return self.run(self.python, "-m", "kedge", *arguments)

    def does(self, *arguments: str) -> str:
        """What kedge prints when it succeeds."""
        done = self.kedge(*arguments)
        assert done.returncode == 0, f"{arguments}: {done.stderr}{done.stdout}"
        return done.stdout

    def fails(self, *arguments: str) -> str:
        """What kedge complains about."""
        done = self.kedge(*arguments)
        assert done.returncode == 1, f"{arguments}: {done.stderr}{done.stdout}"
        assert "Traceback" not in done.stderr, done.stderr
        return done.stderr

    def kubectl(self, *arguments: str, input: str | None = None) -> Outcome:
        return self.run("kubectl", *arguments, input=input)


@pytest.fixture(params=[0], ids=["root"], scope="module")
def module_user(request: pytest.FixtureRequest) -> Iterator[User]:
    """One user for all tests of a file: root, unless a test asks for others."""
    yield from _user(request.param)


@pytest.fixture(params=[0], ids=["root"])
def user(request: pytest.FixtureRequest) -> Iterator[User]:
    """Root, unless a test asks for others."""
    yield from _user(request.param)


@pytest.fixture
def stranger() -> Iterator[User]:
    """An ordinary user of the same machine."""
    yield from _user(NOBODY)


def _user(uid: int) -> Iterator[User]:
    if os.geteuid() != 0 or not shutil.which("setpriv") or not shutil.which("kubectl"):
        pytest.skip(f"{NEEDS_ROOT}; and kubectl")
    home = Path(tempfile.mkdtemp(prefix="kedge-user-"))
    os.chown(home, uid, uid)
    found = User(home, uid)
    yield found
    found.kedge("down", "--all", "--purge")
    shutil.rmtree(home)


def kill(state: Path) -> int:
    """As if the power had failed: the server goes, and first what would start it again."""
    pid = 0
    for part in ("restarter", "server"):
        if found := process.running(state, part):
            os.kill(found.pid, signal.SIGKILL)
            pid = found.pid
    assert pid, "the server is gone"
    while process.birth(pid):
        time.sleep(0.01)
    return pid


@pytest.fixture(name="kill", scope="session")
def kill_fixture() -> Callable[[Path], int]:
    return kill


class SmallDisk:
    """A file system of a few megabytes, and a file that fills it."""

    def __init__(self, directory: Path, owner: int) -> None:
        self.directory = directory
        self._filler = directory / "filler"
        self._owner = owner

    def fill(self) -> None:
        """Take every byte that is left, and go on taking what becomes free until then."""
        for size in (1 << 20, 4096, 1):
            with self._filler.open("ab", buffering=0) as file:
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    pass

    def empty(self) -> None:
        self._filler.unlink(missing_ok=True)

    def free(self) -> int:
        found = os.statvfs(self.directory)
        return found.f_bavail * found.f_frsize


@pytest.fixture
def small_disk(user: User) -> Iterator[SmallDisk]:
    """A disk of 64 MB, mounted at the user's state root."""
    directory = user.home / "states"
    directory.mkdir()
    options = f"size=64m,mode=0700,uid={user.uid},gid={user.uid}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", directory], check=True)
    yield SmallDisk(directory, user.uid)
    user.kedge("down", "--all", "--purge")
    subprocess.run(["umount", "-l", directory], check=True)


@contextlib.contextmanager
def usual_open_files() -> Iterator[None]:
    """Start programs as most people do. The test itself may have more."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (USUAL_OPEN_FILES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@pytest.fixture(scope="module")
def target(
    own_clusters: Any, attacks: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """The API server of a cluster that is this module's own."""
    own = own_clusters.own(tmp_path_factory.mktemp("attacked"))
    try:
        with usual_open_files():
            cluster = own.up()
        api, parts = cluster.api, urlsplit(cluster.api.url)
        where = (parts.hostname or "", parts.port or 0)
        yield attacks.target(*where, api.ca_pem, api.token, own.pid())
    finally:
        own.kedge("down", *own.which, "--purge")
