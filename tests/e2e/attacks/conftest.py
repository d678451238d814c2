"""A server to attack, another user of the machine, and disks that are small enough to fill."""

import contextlib
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from kedge.cli.cluster import process

if TYPE_CHECKING:
    from tests.e2e.conftest import User as User

NOBODY = 65534
USUAL_OPEN_FILES = 1024
"""The soft limit of an ordinary login."""

MachineUser = Callable[[int], contextlib.AbstractContextManager["User"]]


@pytest.fixture(params=[0], ids=["root"], scope="module")
def module_user(request: pytest.FixtureRequest, machine_user: MachineUser) -> Iterator["User"]:
    """One user for all tests of a file: root, unless a test asks for others."""
    with machine_user(request.param) as found:
        yield found


@pytest.fixture(params=[0], ids=["root"])
def user(request: pytest.FixtureRequest, machine_user: MachineUser) -> Iterator["User"]:
    """Root, unless a test asks for others."""
    with machine_user(request.param) as found:
        yield found


@pytest.fixture
def stranger(ordinary_user: "User") -> "User":
    """An ordinary user of the same machine, who did not start the cluster."""
    return ordinary_user


def kill(state: Path) -> int:
    """Kill the server as a power failure would, and first its parent, which would restart it."""
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
        """Take every free byte."""
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
def small_disk(user: "User") -> Iterator[SmallDisk]:
    """A disk of 64 MB, mounted at the user's state root."""
    directory = user.home / "states"
    directory.mkdir()
    options = f"size=64m,mode=0700,uid={user.uid},gid={user.uid}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", directory], check=True)
    yield SmallDisk(directory, user.uid)
    user.kedge("down", "--all", "--purge", "--yes")
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
        own.kedge("down", *own.which, "--purge", "--yes")
