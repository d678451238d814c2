"""The command line: how flags are parsed, how failures are reported."""

import argparse
import sys
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn, cast

from kedge import __version__
from kedge.cli.commands import COMMANDS, GROUPS, CliCommand, CommandModule
from kedge.cli.failure import Failure

DESCRIPTION: Final = """\
kedge runs a Kubernetes-compatible cluster on this machine.

'kedge up' starts one and points kubectl at it; 'kedge down' stops it."""

EPILOG: Final = """\
Use "kedge COMMAND --help" for the flags of a command and for examples. Flags that say which cluster
is meant (-n, --context, --kubeconfig, --name, --state, --config) may stand before the command."""

FLAGS_BEFORE: Final = (
    "-n",
    "--namespace",
    "--context",
    "--kubeconfig",
    "--name",
    "--state",
    "--config",
)
"""Flags that may stand before the command: they say which cluster and namespace it is about."""
KUBECTL_COMMANDS: Final = frozenset(
    (
        "annotate",
        "api-resources",
        "api-versions",
        "attach",
        "auth",
        "autoscale",
        "certificate",
        "cluster-info",
        "config",
        "cordon",
        "debug",
        "diff",
        "drain",
        "expose",
        "kustomize",
        "label",
        "options",
        "patch",
        "plugin",
        "proxy",
        "replace",
        "set",
        "taint",
        "uncordon",
    )
)
"""Commands of kubectl that kedge does not have."""
INTERRUPTED: Final = 130
"""The exit code after Ctrl-C: 128 and the number of SIGINT, as in a shell."""
BROKEN_PIPE: Final = 141
"""The exit code if the reader of the output has ended: 128 and the number of SIGPIPE."""


class CommandParser(ArgumentParser):
    """Takes flags and words in any order, and complains in the manner of kubectl."""

    _sorting = False

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Namespace | None = None
    ) -> tuple[Namespace, Sequence[str]]:
        # `parse_known_intermixed_args` calls this method again, once for flags and once for words.
        if self._sorting or self._subparsers is not None:
            return super().parse_known_args(args, namespace)
        given: Sequence[str] = sys.argv[1:] if args is None else args
        line: Sequence[str] = ()
        if self.get_default("line") is not None and "--" in given:
            # Everything after "--" belongs to another program, even words that begin with a dash.
            end = given.index("--")
            given, line = given[:end], given[end + 1 :]
        self._sorting = True
        try:
            read, unknown = self.parse_known_intermixed_args(given, namespace)
        finally:
            self._sorting = False
        if line:
            read.line = line
        return read, unknown

    def _check_value(self, action: Action, value: Any) -> None:
        """Refuse a value that is not among the choices, and name the one that may be meant."""
        if action.choices is None or value in action.choices:
            return
        import difflib

        choices = [str(each) for each in action.choices]
        close = difflib.get_close_matches(str(value), choices, n=1, cutoff=0.6)
        meant = f": did you mean {close[0]}?" if close else ""
        told = f"invalid choice: {value!r} (choose from {', '.join(choices)}){meant}"
        raise argparse.ArgumentError(action, told)

    def error(self, message: str) -> NoReturn:
        print(
            f"{_coloured('error: ')}{message}\nSee '{self.prog} --help' for usage.", file=sys.stderr
        )
        sys.exit(1)


def run(arguments: Sequence[str]) -> int:
    """Parse the arguments and run the command that they name; returns the exit code."""
    arguments = command_first(arguments)
    named = [command for command in COMMANDS if command.name in arguments]
    # To parse the names of all commands takes a hundredth of a second.
    first = [command for command in named if command.name == arguments[0]]
    if arguments and not first and not arguments[0].startswith("-"):
        parser((), ()).error(unknown_command(arguments))
    if arguments and arguments[0] not in ("-h", "--help", "--version") and not first:
        parser((), ()).error(unknown_flag(arguments[0]))
    if first and first[0].passes_words_on and arguments[1:] not in (["-h"], ["--help"]):
        return report(first[0].load(), Namespace(line=arguments[1:]))
    top = parser(named, first or COMMANDS)
    flags, unknown = top.parse_known_args(arguments)
    if unknown:
        part = subparser(top, arguments[0]) or top
        part.error(not_understood(part, arguments, unknown))
    if flags.command is None:
        top.print_help()
        return 0
    return report(next(each for each in named if each.name == flags.command).load(), flags)


def command_first(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with flags such as -n, which kubectl takes before the command, behind
    it."""
    rest, before = list(arguments), []
    while rest and rest[0].startswith(FLAGS_BEFORE):
        flag = rest.pop(0)
        is_whole = "=" in flag or (flag.startswith("-n") and flag != "-n")
        if not is_whole and flag not in FLAGS_BEFORE:
            return list(arguments)
        before.append(flag)
        if not is_whole and rest:
            before.append(rest.pop(0))
    return [*rest[:1], *before, *rest[1:]] if rest else list(arguments)


def unknown_command(arguments: Sequence[str]) -> str:
    """Return the message for a command that does not exist, with what may be meant."""
    import difflib
    import shlex

    word = arguments[0]
    told = f'unknown command "{word}" for "kedge"'
    if word in KUBECTL_COMMANDS:
        return f"{told}: kubectl has it, as in '{shlex.join(['kedge', 'kubectl', *arguments])}'"
    names = [command.name for command in COMMANDS]
    if close := difflib.get_close_matches(word, names, n=3, cutoff=0.6):
        told += "\n\nDid you mean this?\n" + "\n".join(f"\t{name}" for name in close) + "\n"
    return told


def unknown_flag(flag: str) -> str:
    """Return the message for a flag before the command that cannot stand there."""
    allowed = ", ".join(FLAGS_BEFORE)
    return f"{flag} cannot stand before the command: only {allowed} can. Other flags follow it"


def not_understood(part: ArgumentParser, arguments: Sequence[str], unknown: Sequence[str]) -> str:
    """Return the message for arguments that a command does not have, with the probable remedy."""
    import difflib
    import shlex

    told = f"unrecognized arguments: {' '.join(unknown)}"
    words = [each for each in unknown if not each.startswith("-")]
    if part.get_default("line") is not None and words and "--" not in arguments:
        begin = arguments.index(words[0])
        line = shlex.join(["kedge", *arguments[:begin], "--", *arguments[begin:]])
        return f"{told}: give the command after --, as in '{line}'"
    known = list(part._option_string_actions)
    for each in unknown:
        close = difflib.get_close_matches(each.partition("=")[0], known, n=1, cutoff=0.7)
        if each.startswith("--") and close:
            return f"{told}: did you mean {close[0]}?"
    return told


def subparser(top: ArgumentParser, name: str) -> ArgumentParser | None:
    """Return the parser of one command; None if there is no such command."""
    assert top._subparsers is not None
    [below] = top._subparsers._group_actions
    choices = cast("dict[str, ArgumentParser]", below.choices)
    return choices.get(name)


def report(command: CommandModule, flags: Namespace) -> int:
    """Run a command; print its failure, and return its exit code."""
    try:
        return command.run(flags)
    except Failure as failure:
        # Messages quote what registries, archives and servers have sent.
        from kedge.cli.output.tables import harmless

        print(_coloured(harmless(failure.said)), file=sys.stderr)
        return failure.code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output, such as `head`, has seen enough.
        sys.stderr.close()
        return BROKEN_PIPE


def _coloured(text: str) -> str:
    """Return a message with the word "error" in red, if it begins with it."""
    from kedge.cli.output.colour import painted

    word = text[:5] if text.lower().startswith("error") else ""
    return painted(word, "red", sys.stderr) + text[5:] if word else text


def summary() -> str:
    """Return all commands, by group, as the help shows them."""
    width = max(len(command.name) for command in COMMANDS) + 2
    parts = []
    for title, commands in GROUPS:
        lines = [f"  {each.name.ljust(width)}{each.help}" for each in commands]
        parts.append("\n".join([f"{title}:", *lines]))
    return "\n\n".join(parts)


def parser(
    named: Iterable[CliCommand] = COMMANDS, known: Iterable[CliCommand] = COMMANDS
) -> ArgumentParser:
    """Return the parser of the known commands, and of the flags of the named ones."""
    top = CommandParser(
        prog="kedge",
        usage="kedge [-h] [--version] COMMAND ...",
        description=DESCRIPTION,
        epilog=f"{summary()}\n\n{EPILOG}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"kedge {__version__}")
    # The groups in the epilog take the place of argparse's one long list.
    below = top.add_subparsers(dest="command", prog="kedge", help=argparse.SUPPRESS)
    wanted = list(named)
    for command in known:
        part = below.add_parser(
            command.name,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if command in wanted:
            module = command.load()
            part.description, part.epilog = module.DESCRIPTION, f"examples:\n{module.EXAMPLES}"
            module.add_flags(part)
            _add_examples(part, module.EXAMPLES)
    return top


def _add_examples(command: ArgumentParser, examples: str) -> None:
    """Give the help of each subcommand, such as `kedge image load`, its part of the examples."""
    if command._subparsers is None:
        return
    [below] = command._subparsers._group_actions
    for name, part in cast("dict[str, ArgumentParser]", below.choices).items():
        lines = [each for each in examples.splitlines() if f"{command.prog} {name}" in each]
        if lines and not part.epilog:
            part.epilog = "\n".join(["examples:", *lines])
            part.formatter_class = argparse.RawDescriptionHelpFormatter
