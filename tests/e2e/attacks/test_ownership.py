"""Directories, pid files and links of another user: none gives that user control of a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kedge.cli.cluster import process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.attacks.conftest import User
    from tests.e2e.conftest import Terminal

NOBODY = 65534

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or "KEDGE_E2E_KUBECONFIG" in os.environ,
    reason="to become another user takes root, and to start clusters a machine of our own",
)

RECORD = '{"layout": 1, "name": "trap", "port": 0}'


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process of root that has nothing to do with any cluster."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as child:
        yield child
        child.kill()


def given_to_stranger(path: Path) -> Path:
    for each in (path, *path.rglob("*")):
        os.chown(each, NOBODY, NOBODY, follow_symlinks=False)
    return path


def holding(user: User, lock: Path) -> subprocess.Popen[str]:
    """A process of the user that holds a lock, and so claims that a server runs."""
    code = (
        "import fcntl, os, sys, time; d = os.open(sys.argv[1], os.O_RDWR);"
        " fcntl.flock(d, fcntl.LOCK_EX); print('held', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen(
        [*user.become, user.python, "-c", code, str(lock)],
        env=user.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    return child


@pytest.mark.parametrize("command", ["up", "server"])
def test_root_does_not_keep_a_cluster_in_the_directory_of_another_user(
    terminal: Terminal, stranger: User, command: str
) -> None:
    """Its owner could read the administrator's token."""
    trap = stranger.home / "trap"
    trap.mkdir(mode=0o700)
    given_to_stranger(trap)
    flags = ["--nodes=0"] if command == "up" else ["--port=0"]
    done = terminal.kedge(command, f"--state={trap}", "--name=trap", *flags)
    assert done.returncode == 1, done.stdout
    assert 'belongs to "nobody", who would then control the cluster' in done.stderr
    assert not list(trap.iterdir())


def test_a_directory_below_that_of_another_user_is_not_taken_either(
    terminal: Terminal, stranger: User
) -> None:
    """The other user could replace it."""
    done = terminal.kedge("up", f"--state={stranger.home}/new", "--name=trap", "--nodes=0")
    assert done.returncode == 1, done.stdout
    assert f'{stranger.home} belongs to "nobody"' in done.stderr
    assert not (stranger.home / "new").exists()


def test_a_directory_that_all_may_write_to_is_not_taken(terminal: Terminal) -> None:
    place = terminal.home / "shared"
    place.mkdir()
    place.chmod(0o777)
    for state in (place, place / "below"):
        done = terminal.kedge("up", f"--state={state}", "--name=trap", "--nodes=0")
        assert done.returncode == 1, done.stdout
        assert "may be written to by other users" in done.stderr
    assert not list(place.iterdir())


def test_a_cluster_below_a_sticky_directory_is_fine(terminal: Terminal) -> None:
    """As in /tmp: others may add to it, but not exchange what is ours."""
    place = terminal.home / "tmp"
    place.mkdir()
    place.chmod(0o1777)
    done = terminal.kedge("up", f"--state={place}/mine", "--name=mine", "--nodes=0")
    assert done.returncode == 0, done.stderr
    assert terminal.kedge("down", f"--state={place}/mine", "--purge").returncode == 0


def test_down_does_not_kill_a_process_that_another_user_chose(
    terminal: Terminal, stranger: User, bystander: subprocess.Popen[bytes]
) -> None:
    """The pid file names a process of root, and the directory's owner holds its lock."""
    trap = stranger.home / "trap"
    trap.mkdir(mode=0o700)
    (trap / "cluster.json").write_text(RECORD)
    (trap / "server.pid").write_text(f"{bystander.pid} {process.birth(bystander.pid)}\n")
    given_to_stranger(trap)
    holder = holding(stranger, trap / "server.pid")
    try:
        done = terminal.kedge("down", f"--state={trap}", "--purge")
    finally:
        holder.kill()
        holder.communicate()
    assert bystander.poll() is None, "root's process was killed"
    assert done.returncode == 1, done.stdout
    assert 'belongs to "nobody"' in done.stderr
    assert (trap / "cluster.json").exists()


def test_a_pid_without_the_lock_is_not_signalled_in_a_directory_of_ours_either(
    terminal: Terminal, bystander: subprocess.Popen[bytes]
) -> None:
    """A pid file from a backup or from another machine may name any process."""
    place = terminal.home / "mine"
    place.mkdir(mode=0o700)
    (place / "cluster.json").write_text(RECORD)
    (place / "server.pid").write_text(f"{bystander.pid} {process.birth(bystander.pid)}\n")
    code = (
        "import fcntl, os, sys, time; d = os.open(sys.argv[1], os.O_RDWR);"
        " fcntl.flock(d, fcntl.LOCK_EX); print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(place / "server.pid")], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        done = terminal.kedge("down", f"--state={place}")
        holder.kill()
    assert bystander.poll() is None, "a stranger was killed"
    assert done.returncode == 1
    assert "cannot be seen from here" in done.stderr


@pytest.mark.parametrize("command", ["status", "down", "token list", "image list"])
def test_no_command_takes_the_directory_of_another_user(
    terminal: Terminal, stranger: User, command: str
) -> None:
    trap = stranger.home / "trap"
    trap.mkdir(mode=0o700)
    (trap / "cluster.json").write_text(RECORD)
    given_to_stranger(trap)
    done = terminal.kedge(*command.split(), f"--state={trap}")
    assert done.returncode == 1, done.stdout
    assert 'belongs to "nobody"' in done.stderr


def test_a_state_root_of_another_user_is_not_acted_upon(
    terminal: Terminal, stranger: User, bystander: subprocess.Popen[bytes]
) -> None:
    """`sudo -E` keeps the caller's variables."""
    trap = stranger.home / "states" / "kedge" / "trap"
    trap.mkdir(mode=0o700, parents=True)
    (trap / "cluster.json").write_text(RECORD)
    (trap / "server.pid").write_text(f"{bystander.pid} {process.birth(bystander.pid)}\n")
    given_to_stranger(stranger.home)
    terminal.environment["XDG_STATE_HOME"] = str(stranger.home / "states")
    holder = holding(stranger, trap / "server.pid")
    try:
        done = terminal.kedge("down", "--all", "--purge")
        assert "trap" not in terminal.kedge("list").stdout
    finally:
        holder.kill()
        holder.communicate()
        terminal.environment["XDG_STATE_HOME"] = str(terminal.home / "states")
    assert bystander.poll() is None, "root's process was killed"
    assert (trap / "cluster.json").exists(), done.stdout


def test_a_user_does_not_take_a_directory_of_root(stranger: User, tmp_path: Path) -> None:
    place = stranger.home / "roots"
    place.mkdir()
    place.chmod(0o755)
    said = stranger.fails("up", f"--state={place}", "--name=trap", "--nodes=0")
    assert 'belongs to "root"' in said


def test_a_link_of_another_user_in_place_of_the_kubeconfig_is_not_followed(
    terminal: Terminal, stranger: User
) -> None:
    """Root's own file would be replaced, and then even given to the user."""
    victim = terminal.home / "victim"
    victim.write_text("apiVersion: v1\nkind: Config\n")
    kube = stranger.home / ".kube"
    kube.mkdir()
    (kube / "config").symlink_to(victim)
    given_to_stranger(kube)
    done = terminal.kedge("up", "--name=k", "--nodes=0", f"--kubeconfig={kube}/config")
    assert victim.read_text() == "apiVersion: v1\nkind: Config\n"
    assert done.returncode == 125, done.stdout
    assert "a link that belongs to another user" in done.stderr


def test_a_kubeconfig_in_the_home_of_another_user_is_theirs(
    terminal: Terminal, stranger: User
) -> None:
    """Root starts a cluster for another user; links beside the file are not followed."""
    kube = stranger.home / ".kube"
    kube.mkdir()
    given_to_stranger(kube)
    done = terminal.kedge("up", "--name=k", "--nodes=0", f"--kubeconfig={kube}/config")
    assert done.returncode == 0, done.stderr
    assert (kube / "config").stat().st_uid == NOBODY
    terminal.kedge("down", "--name=k", "--purge")


def test_files_are_written_beside_a_trap_not_through_it(tmp_path: Path) -> None:
    """The name under which a file is written first can be guessed."""
    from kedge.machinery import atomic

    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / f".config.{os.getpid()}").symlink_to(victim)
    atomic.write(tmp_path / "config", b"new")
    assert (victim.read_text(), (tmp_path / "config").read_text()) == ("precious", "new")


def test_a_killed_server_that_is_still_being_cleared_away_is_waited_for(
    terminal: Terminal, kill: Callable[[Path], int]
) -> None:
    """Its memory goes before its lock: for a large one that takes a second."""
    assert terminal.kedge("up", "--name=k", "--nodes=0").returncode == 0
    place = terminal.states / "k"
    kill(place)
    # The kernel at work: the lock is held, by a process that is no more the recorded one.
    code = (
        "import fcntl, os, sys, time; d = os.open(sys.argv[1], os.O_RDWR);"
        " fcntl.flock(d, fcntl.LOCK_EX); print('held', flush=True); time.sleep(1.5)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(place / "server.pid")], stdout=subprocess.PIPE, text=True
    ) as late:
        assert late.stdout is not None
        assert late.stdout.readline() == "held\n"
        done = terminal.kedge("up", "--name=k", "--nodes=0")
    assert done.returncode == 0, done.stderr
    assert "already running" not in done.stdout
