"""How the command line is read and how it fails."""

import subprocess
import sys
from argparse import Namespace

import pytest

from kedge.__main__ import DEEDS
from kedge.cli.failure import Failure
from kedge.cli.main import COMMANDS, run


def test_every_command_has_a_deed_help_and_examples() -> None:
    assert [command.NAME for command in COMMANDS] == list(DEEDS)
    for command in COMMANDS:
        assert f"kedge {command.NAME}" in command.EXAMPLES
        assert not command.HELP.endswith(".")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["fly"], "invalid choice: 'fly'"),
        (["up", "--nodes=3"], "unrecognized arguments: --nodes=3"),
        (["up", "--stor=memory"], "unrecognized arguments: --stor=memory"),
        (["up", "--store=etcd://here"], "invalid choice: 'etcd://here'"),
        (["up", "--name=Not_Good"], '"Not_Good" is no name for a cluster'),
        (["up", "--wait=0"], "not a positive duration"),
        (["up", "--wait=soon"], "invalid duration"),
        (["up", "--port=-1"], '"-1" is not a port'),
    ],
)
def test_what_is_not_understood_is_said_in_kubectls_manner(
    capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    with pytest.raises(SystemExit) as exit:
        run(arguments, DEEDS)
    said = capsys.readouterr()
    assert exit.value.code == 1
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert complaint in said.err
    assert said.err.endswith("--help' for usage.\n")


def test_no_command_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([], DEEDS) == 0
    assert "usage: kedge" in capsys.readouterr().out


def test_a_failure_is_one_line_and_exit_code_one(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(flags: Namespace) -> int:
        raise Failure("the sky has fallen: wear a hat")

    assert run(["up"], {"up": fail}) == 1
    assert capsys.readouterr().err == "error: the sky has fallen: wear a hat\n"


def test_an_interrupted_command_ends_as_the_shell_expects() -> None:
    def interrupted(flags: Namespace) -> int:
        raise KeyboardInterrupt

    assert run(["up"], {"up": interrupted}) == 130


@pytest.mark.parametrize("heavy", ["msgspec", "yaml", "ssl", "asyncio", "cryptography", "uvloop"])
def test_the_help_reads_nothing_that_takes_long(heavy: str) -> None:
    script = f"import sys, kedge.__main__; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
