"""What callers do to commands without knowing it: closed descriptors, masks, two at once."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kedge.cli.cluster import process, restarts

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tests.e2e.attacks.conftest import User
    from tests.e2e.conftest import Terminal

pytestmark = pytest.mark.skipif(
    "KEDGE_E2E_KUBECONFIG" in os.environ, reason="clusters are started here"
)

UP = ("up", "--name=k", "--nodes=0")


def test_standard_descriptors_that_are_closed_harm_nothing(
    terminal: Terminal, eventually: Callable[..., Any]
) -> None:
    """Pipes would get their numbers: the process that restarts the others was then lost."""
    command = [sys.executable, "-m", "kedge", *UP]
    done = terminal.run("sh", "-c", '"$@" <&- >&- 2>&-', "sh", *command)
    assert done.returncode == 0
    place = terminal.states / "k"
    assert restarts.running(place) is not None
    killed = process.running(place)
    assert killed is not None
    os.kill(killed.pid, signal.SIGKILL)
    eventually(lambda: process.running(place) not in (None, killed))
    eventually(lambda: terminal.kubectl("get", "--raw", "/readyz").stdout == "ok")


def test_a_mask_that_takes_the_owners_rights_away_is_not_applied_to_the_owner(
    stranger: User,
) -> None:
    """Not even `kedge down` could reach such a directory."""
    words = [*stranger.become, stranger.python, "-m", "kedge"]
    for command in (("up", "--nodes=0"), ("status",), ("down", "--purge")):
        done = subprocess.run(
            ["sh", "-c", 'umask 0777; exec "$@"', "sh", *words, *command],
            env=stranger.environment,
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert not (stranger.home / "states" / "kedge" / "default").exists()


def test_a_directory_that_may_not_be_looked_into_is_said(stranger: User) -> None:
    hidden = stranger.home / "states" / "kedge"
    hidden.mkdir(parents=True)
    hidden.chmod(0o700)
    for command in ("up", "status", "down"):
        assert "Permission denied" in stranger.fails(command)


def test_a_user_without_a_home_is_told_what_to_set(stranger: User) -> None:
    words = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups"]
    environment = {
        k: v for k, v in stranger.environment.items() if k not in ("HOME", "XDG_STATE_HOME")
    }
    done = subprocess.run(
        [*words, stranger.python, "-m", "kedge", "up"],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "error: user 54321 has no home directory: set HOME to one that is theirs\n"
    )


def test_two_in_the_foreground_at_once_are_one_cluster_with_its_nodes(
    terminal: Terminal, eventually: Callable[..., Any]
) -> None:
    """The second one took what the first had half started for leftovers, and ended it."""
    command = [sys.executable, "-m", "kedge", "up", "--name=k", "--nodes=1", "--foreground"]
    both = [
        subprocess.Popen(
            command,
            env=terminal.environment,
            cwd=terminal.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(2)
    ]
    try:
        place = terminal.states / "k"
        eventually(lambda: any(each.poll() is not None for each in both), within=40)
        (second,) = (each for each in both if each.poll() is not None)
        assert second.stdout is not None
        said = second.stdout.read()
        assert (second.returncode, "is running already" in said) == (1, True), said
        assert process.running(place / "nodes" / "node-1", "node") is not None
        assert restarts.running(place) is not None
        # The first one has announced its server; the node registers a moment later.
        for condition in ("create", "condition=Ready"):
            wait = ("wait", "node/node-1", f"--for={condition}", "--timeout=20s")
            assert terminal.kubectl(*wait).returncode == 0
    finally:
        for each in both:
            with each:
                each.terminate()
    assert process.running(place / "nodes" / "node-1", "node") is None


def spoil(nodes: Path) -> None:
    (nodes / "file").write_text("x")
    (nodes / "elsewhere").symlink_to("/etc")
    (nodes / "loop").symlink_to("loop")
    (nodes / "locked").mkdir(mode=0)
    os.mkfifo(nodes / "pipe")


def replace_by_file(nodes: Path) -> None:
    (nodes / "locked").rmdir()
    for each in nodes.iterdir():
        each.unlink()
    nodes.rmdir()
    nodes.write_text("x")


def test_what_is_no_node_among_the_nodes_keeps_no_cluster_from_going(terminal: Terminal) -> None:
    assert terminal.kedge(*UP).returncode == 0
    nodes = terminal.states / "k" / "nodes"
    nodes.mkdir(exist_ok=True)
    for damage in (spoil, replace_by_file):
        damage(nodes)
        assert terminal.kedge("status", "--name=k").returncode == 0
        done = terminal.kedge("down", "--name=k")
        assert done.returncode == 0, done.stderr
        if damage is spoil:
            done = terminal.kedge(*UP)
            assert done.returncode == 0, done.stderr
    done = terminal.kedge("down", "--name=k", "--purge")
    assert done.returncode == 0, done.stderr
    assert not (terminal.states / "k").exists()
    assert Path("/etc/passwd").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="to mount takes root")
def test_a_cluster_on_a_disk_that_became_read_only_can_be_stopped(terminal: Terminal) -> None:
    """As ext4 makes itself after an error of the disk."""
    place = terminal.home / "disk"
    place.mkdir()
    which = (f"--state={place}/k", "--name=k")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0700", "tmpfs", place], check=True)
    try:
        assert terminal.kedge("up", *which, "--nodes=1").returncode == 0
        # Over it, because what has a file open for writing keeps the disk from being remounted.
        subprocess.run(["mount", "--bind", place, place], check=True)
        subprocess.run(["mount", "-o", "remount,ro,bind", place], check=True)
        done = terminal.kedge("down", *which)
        assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr
        assert "Read-only file system" in done.stderr
        assert process.running(place / "k") is None
        assert process.running(place / "k" / "nodes" / "node-1", "node") is None
        assert restarts.running(place / "k") is None
        refused = terminal.kedge("up", *which, "--nodes=1").stderr
        assert f"cannot keep the cluster in {place}/k" in refused
        subprocess.run(["umount", "-l", place], check=True)
        done = terminal.kedge("down", *which, "--purge")
        assert done.returncode == 0, done.stderr
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def supervisors(runtime: Path) -> list[str]:
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(runtime) in each.read_text(errors="replace").split("\0"):
                found.append(each.parent.name)
    return found


def pids(place: Path) -> list[int]:
    parts = ((place, "server"), (place, "restarter"), (place / "nodes" / "node-1", "node"))
    return [found.pid for found in (process.running(*each) for each in parts) if found]


@pytest.mark.parametrize("content", [None, "²3 1\n"])
def test_a_cluster_whose_pid_files_are_gone_or_damaged_is_stopped(
    terminal: Terminal, content: str | None
) -> None:
    """Programs that tidy up /tmp delete what is old and never written to. What such a file led to
    ran on for ever, in a directory that was deleted."""
    assert terminal.kedge("up", "--name=k", "--nodes=1").returncode == 0
    place = terminal.states / "k"
    running = pids(place)
    assert len(running) == 3
    runtime = place / "nodes" / "node-1" / "runtime"
    assert supervisors(runtime)
    for file in (place / "server.pid", place / "restarter.pid", place / "nodes/node-1/node.pid"):
        if content is None:
            file.unlink()
        else:
            file.write_text(content)
    if content is None:
        (runtime / "supervisor.lock").unlink()
        (runtime / "supervisor.sock").unlink()
    done = terminal.kedge("down", "--name=k", "--purge")
    assert (done.returncode, done.stderr) == (0, "")
    assert [pid for pid in running if process.birth(pid)] == []
    assert supervisors(runtime) == []
    assert not place.exists()
