import os
from types import SimpleNamespace
from typing import Any

import pytest

from kedge.supervisor.container import exec as execution
from kedge.supervisor.container.exec import ExecProcess
from kedge.supervisor.kernel import processes
from kedge.supervisor.launch.reports import LaunchReport


def command(done: list[str], **spec: Any) -> ExecProcess:
    container: Any = SimpleNamespace(
        spec={"env": ["A=B"], "argv": ["main"], **spec}, group=None, command_pids=set()
    )
    host: Any = SimpleNamespace(loop=None, isolated=False)
    return ExecProcess(1, container, host, lambda: done.append("done"))


def test_a_command_has_the_spec_of_its_container_but_for_arguments_and_terminal() -> None:
    one = command([])
    assert one._command_spec(["sh"], False) == {"env": ["A=B"], "argv": ["sh"], "terminal": False}
    assert one._command_spec(["sh"], True)["env"] == ["A=B", "TERM=xterm"]
    assert one._container.spec["argv"] == ["main"]


def test_the_terminal_of_the_user_is_kept() -> None:
    assert command([], env=["TERM=vt100"])._command_spec(["sh"], True)["env"] == ["TERM=vt100"]


def test_success_is_known_when_the_reports_end_after_ready() -> None:
    done: list[str] = []
    one = command(done)
    one._handle_report(LaunchReport(is_ready=True))
    assert done == []
    one._launched()
    assert (done, one.error) == (["done"], "")


def test_a_failed_start_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr(processes, "kill_tree", killed.append)
    done: list[str] = []
    one = command(done)
    one._pid = 7
    one._handle_report(LaunchReport(error="no such file"))
    one._launched()
    assert (killed, one.error, done) == ([7], "no such file", [])


@pytest.mark.parametrize(("status", "code"), [(3 << 8, 3), (9, 137)])
def test_the_exit_code_of_a_signal_is_that_of_a_shell(status: int, code: int) -> None:
    done: list[str] = []
    one = command(done)
    one._pid = 7
    one._ready = True
    one._reports = SimpleNamespace(listen=lambda: None, close=lambda: None)  # type: ignore[assignment]
    waited: list[bool] = []
    one.waiting.append(lambda: waited.append(True))
    usage: Any = None
    one._exited(7, status, usage)
    assert (one.exit_code, waited, done) == (code, [True], ["done"])


def test_the_caller_gets_the_other_ends_of_the_streams() -> None:
    (stdin, stdout, stderr), kept = execution._pipes(stdin=True)
    os.write(kept[0], b"in")
    os.write(stdout, b"out")
    assert (os.read(stdin, 9), os.read(kept[1], 9)) == (b"in", b"out")
    for descriptor in (stdin, stdout, stderr, *kept):
        os.close(descriptor)
