import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from kedge.supervisor.kernel import libc
from kedge.supervisor.launch import launch, privileges
from kedge.supervisor.launch.options import LaunchOptions
from kedge.supervisor.launch.program import LaunchError


def messages(status: socket.socket) -> list[dict[str, Any]]:
    """What the child sent until it closed its end."""
    found = []
    while data := status.recv(65_536):
        found.append(json.loads(data))
    return found


def run_plain(
    spec: dict[str, Any],
    links: dict[str, int] | None = None,
    capabilities: int | None = None,
    home: str = "/none",
) -> tuple[int, list[dict[str, Any]], bytes]:
    """Run a program without namespaces: exit status, messages and output."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    read, write = os.pipe()
    null = os.open(os.devnull, os.O_RDWR)
    options = LaunchOptions(theirs.fileno(), (null, write, write))
    options.links = links or {}
    whole: Any = {
        "lowers": [],
        "binds": [],
        "env": ["PATH=/usr/bin:/bin", "A=B"],
        "directory": "/",
        "user": os.geteuid(),
        "group": os.getegid(),
        "groups": [],
        "capabilities": 0,
        "seccomp": "",
        "no_new_privileges": False,
        "oom_score_adj": 0,
        **spec,
    }
    if (pid := os.fork()) == 0:
        signal.alarm(20)
        if capabilities is not None:
            libc.set_capabilities(capabilities)
        launch.plain(whole, vars(options), home)
    for descriptor in (write, null):
        os.close(descriptor)
    theirs.close()
    with ours:
        said = messages(ours)
    with open(read, "rb") as file:
        output = file.read()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said, output


def test_a_program_runs_with_its_own_variables_and_directory() -> None:
    code, said, output = run_plain({"argv": ["sh", "-c", "echo $A $PWD; exit 3"]})
    assert (code, output) == (3, b"B /\n")
    assert said[-1] == {"ready": True}


def test_a_program_that_does_not_exist_is_reported() -> None:
    code, said, _ = run_plain({"argv": ["no-such-program"]})
    assert code == 1
    assert said[-1] == {"error": 'exec: "no-such-program": executable file not found in $PATH'}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to lose its capabilities")
@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"user": 1234}, "cannot become user 1234; this takes CAP_SETUID and CAP_SETGID"),
        (
            {"lowers": ["/none"]},
            "the root cannot be changed to the image; this takes CAP_SYS_CHROOT",
        ),
    ],
)
def test_missing_capabilities_are_named(spec: dict[str, Any], told: str, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    code, said, _ = run_plain({"argv": ["true"], **spec}, capabilities=0, home=str(tmp_path))
    assert code == 1
    assert said[-1]["error"].startswith(told)
    assert "--cap-add" in said[-1]["error"]


def test_volumes_are_open_under_the_numbers_of_their_links(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("value")
    bind = {"source": str(tmp_path), "part": "", "target": "/data"}
    spec = {"argv": ["cat", "/proc/self/fd/610/key"], "binds": [bind]}
    code, _, output = run_plain(spec, links={"/data": 610})
    assert (code, output) == (0, b"value")


def test_privileges_are_dropped_before_the_process_is_visible(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: list[str] = []
    monkeypatch.setattr(launch, "_arrive", lambda *_: (False, True, []))
    monkeypatch.setattr(privileges, "drop", lambda *_, **__: order.append("drop"))
    monkeypatch.setattr(launch, "_enter_pid_namespace", lambda *_: order.append("enter"))
    monkeypatch.setattr(launch, "_run", lambda *_: order.append("run"))
    spec: Any = {}
    launch._become(spec, LaunchOptions(0, (0, 1, 2)), lambda: False)
    assert order == ["drop", "enter", "run"]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (LaunchError("no"), "no"),
        (OSError(2, "gone"), "gone"),
        (ValueError("odd"), "ValueError: odd"),
        (LaunchError("x" * 10_000), "x" * 8192),
    ],
)
def test_errors_are_sent_before_the_process_ends(
    error: Exception, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr(sys, "excepthook", lambda *_: None)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        launch._give_up(LaunchOptions(theirs.fileno(), (0, 1, 2)), error)
        assert json.loads(ours.recv(65_536)) == {"error": text}
    assert ended == [1]
