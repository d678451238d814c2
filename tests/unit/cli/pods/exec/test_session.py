"""A command far away: what is asked for, and what its end means here."""

from urllib.parse import parse_qsl

import pytest

from kedge.cli import main
from kedge.cli.failure import Failure
from kedge.cli.pods.exec.session import ExecOptions, exit_code
from kedge.node.server import status


def test_streams_and_words_are_in_the_query() -> None:
    plain = ExecOptions(pod="p", command=["ls", "-l", "a b"], stdin=True)
    assert parse_qsl(plain.query("c")) == [
        ("command", "ls"),
        ("command", "-l"),
        ("command", "a b"),
        ("container", "c"),
        ("stdin", "true"),
        ("stdout", "true"),
        ("stderr", "true"),
    ]
    terminal = dict(parse_qsl(ExecOptions(pod="p", command=["sh"], tty=True).query("c")))
    assert "stderr" not in terminal
    assert terminal["tty"] == "true"


def test_the_exit_code_is_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(status.SUCCESS) == 0
    assert exit_code(status.ended(["sh"], 42)) == 42
    assert capsys.readouterr().err == "command terminated with exit code 42\n"


def test_a_command_that_could_not_be_run_is_a_failure() -> None:
    with pytest.raises(Failure, match="Internal error occurred: no such file"):
        exit_code(status.failed("no such file"))


def test_all_that_follows_two_dashes_belongs_to_the_command() -> None:
    flags = main.parser().parse_args(
        ["exec", "-it", "p", "-c", "c", "--", "git", "log", "-c", "--", "file"]
    )
    assert (flags.pod, flags.container, flags.stdin, flags.tty) == ("p", "c", True, True)
    assert flags.line == ["git", "log", "-c", "--", "file"]
