"""How the command line is read and how it fails."""

import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable

import pytest

from kedge.cli.commands import COMMANDS
from kedge.cli.failure import Failure, ServerRefusal
from kedge.cli.main import command_first, parser, report, run, subparser


class Stub:
    """A command that does what it is given."""

    DESCRIPTION = EXAMPLES = ""

    def __init__(self, work: Callable[[], int]) -> None:
        self._work = work

    def add_flags(self, parser: ArgumentParser) -> None: ...

    def run(self, flags: Namespace) -> int:
        return self._work()


def failing(error: BaseException) -> Stub:
    def fail() -> int:
        raise error

    return Stub(fail)


def test_every_command_can_be_loaded_and_has_examples() -> None:
    for command in COMMANDS:
        module = command.load()
        assert f"kedge {command.name}" in module.EXAMPLES
        assert callable(module.run)
        assert not command.help.endswith(".")


def test_every_subcommand_has_examples() -> None:
    for command in COMMANDS:
        part = subparser(parser([command], [command]), command.name)
        assert part is not None
        if part._subparsers is not None:
            [below] = part._subparsers._group_actions
            for name, each in dict(below.choices or {}).items():
                assert f"kedge {command.name} {name}" in (each.epilog or "")


def test_only_the_named_command_is_imported() -> None:
    script = (
        "import sys, kedge.cli.main as main; main.parser([]);"
        "sys.exit('kedge.cli.version' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


HEAVY = {"asyncio", "ssl", "yaml", "cryptography", "kedge.client.client", "kedge.api.model"}
"""Modules that the work of commands needs, and that take most of the time of an import."""


@pytest.mark.parametrize("name", [command.name for command in COMMANDS])
def test_help_imports_none_of_the_modules_that_do_the_work(name: str) -> None:
    script = (
        "import atexit, sys, kedge.cli.main as main;"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr));"
        f"main.run(['{name}', '--help'])"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert f"kedge {name}" in shown.stdout
    assert not HEAVY & set(shown.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["fly"], 'unknown command "fly" for "kedge"'),
        (["gte", "pods"], "Did you mean this?\n\tget\n"),
        (["label", "pod", "x", "a=b"], "kubectl has it, as in 'kedge kubectl label pod x a=b'"),
        (["--as", "bob", "get", "pods"], "--as cannot stand before the command: only -n, "),
        (["rollout", "statsu", "deploy/web"], "did you mean status?"),
        (["explain", "pods"], "the fields of a kind: 'kedge kubectl explain pods'"),
        (["get", "pods", "--namespce", "x"], "did you mean --namespace?"),
        (["-n", "x", "exec", "web", "ls", "-l"], "as in 'kedge exec -n x web -- ls -l'"),
        (["up", "--replicas=3"], "unrecognized arguments: --replicas=3"),
        (["up", "--stor=memory"], "unrecognized arguments: --stor=memory"),
        (["up", "--store=etcd://here"], '"here" is not a member of etcd: write HOST:PORT'),
        (["up", "--name=Not_Good"], '"Not_Good" is no name for a cluster'),
        (["up", "--wait=0"], "not a positive duration"),
        (["up", "--wait=soon"], "invalid duration"),
        (["up", "--port=-1"], '"-1" is not a port'),
        (["get"], "the following arguments are required"),
        (["get", "pods", "-o=xml"], 'suitable for the output format "xml"'),
        (["create", "namespace", "a"], "are kubectl's: 'kedge kubectl create namespace a'"),
        (["create", "-o=yaml"], "the following arguments are required: -f/--filename"),
    ],
)
def test_what_is_not_understood_is_said_in_kubectls_manner(
    capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    with pytest.raises(SystemExit) as exit:
        run(arguments)
    said = capsys.readouterr()
    assert exit.value.code == 1
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert complaint in said.err
    assert said.err.endswith("--help' for usage.\n")


def test_flags_and_words_come_in_any_order() -> None:
    flags = parser().parse_args(["get", "-n", "a", "pods", "-o=yaml", "web", "-w", "db"])
    assert flags.words == ["pods", "web", "db"]
    assert (flags.namespace, flags.output, flags.watch) == ("a", "yaml", True)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["-n", "a", "get", "pods"], ["get", "-n", "a", "pods"]),
        (["-na", "get"], ["get", "-na"]),
        (["--context=x", "--namespace", "a", "get"], ["get", "--context=x", "--namespace", "a"]),
        (["get", "-n", "a"], ["get", "-n", "a"]),
        (["--version"], ["--version"]),
        (["--namer", "x", "up"], ["--namer", "x", "up"]),
        (["-n"], ["-n"]),
        ([], []),
    ],
)
def test_flags_of_the_cluster_may_stand_before_the_command(
    given: list[str], expected: list[str]
) -> None:
    assert command_first(given) == expected


def test_what_the_server_refuses_is_said_in_its_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        report(
            failing(ServerRefusal('Error from server (NotFound): pods "x" not found')), Namespace()
        )
        == 1
    )
    assert capsys.readouterr().err == 'Error from server (NotFound): pods "x" not found\n'


def test_no_command_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    assert "usage: kedge" in capsys.readouterr().out


def test_a_failure_is_one_line_and_exit_code_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(failing(Failure("the sky has fallen: wear a hat")), Namespace()) == 1
    assert capsys.readouterr().err == "error: the sky has fallen: wear a hat\n"


def test_an_interrupted_command_ends_as_the_shell_expects() -> None:
    assert report(failing(KeyboardInterrupt()), Namespace()) == 130


@pytest.mark.parametrize("heavy", ["msgspec", "yaml", "ssl", "asyncio", "cryptography", "uvloop"])
def test_the_help_reads_nothing_that_takes_long(heavy: str) -> None:
    script = f"import sys, kedge.__main__; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_message_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(failing(Failure("it said \x1b[2J\x9b1m\r\nnext")), Namespace()) == 1
    assert capsys.readouterr().err == "error: it said ^[[2J\\x9b1m\\r\nnext\n"
