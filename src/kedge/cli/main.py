"""The command line: the list of commands, how flags are parsed, how failures are reported."""

import argparse
import importlib
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, NoReturn, Protocol, cast

from kedge import __version__
from kedge.cli.failure import Failure


class CommandModule(Protocol):
    """The module of one command: its flags, its work and its view."""

    DESCRIPTION: str
    EXAMPLES: str

    def add_flags(self, parser: ArgumentParser) -> None:
        """Declare the command's flags."""
        ...

    def run(self, flags: Namespace) -> int:
        """Do the work; returns the exit code."""
        ...


class CliCommand(NamedTuple):
    """One command, in a module that is imported only if the command line names the command.

    The module imports the work in `run`, so that `--help` is fast: most of the time of a short
    command is spent on imports.
    """

    name: str
    module: str
    """Below kedge.cli."""
    help: str
    passes_words_on: bool = False
    """Whether all words after the command belong to another program."""

    def load(self) -> CommandModule:
        return cast(CommandModule, importlib.import_module(f"kedge.cli.{self.module}"))


COMMANDS: Final = (
    CliCommand("up", "cluster.up.command", "Start a cluster and point kubectl at it"),
    CliCommand("down", "cluster.down", "Stop a cluster and remove it from the kubeconfig"),
    CliCommand("run", "cluster.run", "Run a command with a throw-away cluster, or a pod"),
    CliCommand("envtest", "envtest.command", "Print a directory for $KUBEBUILDER_ASSETS"),
    CliCommand("status", "cluster.status", "Show whether a cluster runs, and where"),
    CliCommand("list", "cluster.list", "List the clusters on this machine"),
    CliCommand("backup", "backup.backup", "Write the objects and keys of a cluster to a file"),
    CliCommand("restore", "backup.restore", "Make a cluster of such a file"),
    CliCommand("doctor", "doctor.command", "Show what this machine lacks, and how to mend it"),
    CliCommand("get", "objects.get.command", "Show objects of the cluster"),
    CliCommand("describe", "objects.describe.command", "Describe objects of the cluster in detail"),
    CliCommand("create", "objects.create", "Create objects from files"),
    CliCommand("apply", "objects.apply", "Create or update objects from files"),
    CliCommand("delete", "objects.delete.command", "Delete objects of the cluster"),
    CliCommand("edit", "objects.edit.command", "Change an object in an editor"),
    CliCommand("scale", "workloads.scale", "Change how many pods a workload has"),
    CliCommand("rollout", "workloads.rollout.command", "Follow and change rollouts of workloads"),
    CliCommand("wait", "objects.wait.command", "Wait for a state of objects"),
    CliCommand("events", "objects.events", "Show what happened, the latest last"),
    CliCommand("namespace", "objects.namespace.command", "Show or change the current namespace"),
    CliCommand("explain", "explain.command", "Explain where limits or variables come from"),
    CliCommand("logs", "pods.logs.command", "Show the logs of a container"),
    CliCommand("exec", "pods.exec.command", "Run a command in a container"),
    CliCommand("cp", "pods.cp.command", "Copy files into a container or out of it"),
    CliCommand("port-forward", "pods.port_forward.command", "Forward ports to a pod"),
    CliCommand("open", "open", "Print the address of a Service, and open it in a browser"),
    CliCommand("ui", "ui.command", "Open the dashboard in a browser, signed in"),
    CliCommand("top", "usage.top.command", "Show the usage of nodes, pods and containers, live"),
    CliCommand(
        "recommend",
        "usage.recommend.command",
        "Propose requests and limits from the measured usage",
    ),
    CliCommand(
        "simulate",
        "usage.simulate.command",
        "Compare ways to place pods, over recorded usage",
    ),
    CliCommand("why", "pods.why.command", "Explain why a pod is on its node, or on none"),
    CliCommand("image", "image", "Load, list and remove images"),
    CliCommand("volume", "volume.command", "List volumes, and show how much data they hold"),
    CliCommand("device", "device", "Test a device plugin"),
    CliCommand("faults", "faults.command", "Make requests fail on purpose, in a cluster for tests"),
    CliCommand(
        "requests", "requests.command", "Show what clients of a cluster for tests asked for"
    ),
    CliCommand("clock", "clock.command", "Show and move the time of a cluster for tests"),
    CliCommand("token", "token", "Create, list and delete tokens for joining a cluster"),
    CliCommand(
        "node-autoscaler",
        "cluster.node_autoscaler",
        "Add and remove local nodes, as 'kedge up --nodes 1..5' does",
    ),
    CliCommand("server", "cluster.server", "Run an API server in the foreground"),
    CliCommand("node", "cluster.node", "Run a node agent in the foreground"),
    CliCommand(
        "metrics-server",
        "cluster.metrics_server",
        "Serve the metrics API for a cluster that does not run kedge",
    ),
    CliCommand("support-bundle", "support.command", "Collect what helpers need, without secrets"),
    CliCommand("completion", "completion.command", "Print the completion script of a shell"),
    CliCommand("kubectl", "kubectl.command", "Run kubectl, and fetch it if there is none", True),
    CliCommand("version", "version", "Print the version of kedge and of Kubernetes"),
)

DESCRIPTION: Final = """\
kedge runs a Kubernetes-compatible cluster on this machine.

'kedge up' starts one and points kubectl at it; 'kedge down' stops it."""

EPILOG: Final = """\
Use "kedge COMMAND --help" for the flags of a command and for examples."""

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

    def error(self, message: str) -> NoReturn:
        print(f"error: {message}\nSee '{self.prog} --help' for usage.", file=sys.stderr)
        sys.exit(1)


def run(arguments: Sequence[str]) -> int:
    """Parse the arguments and run the command that they name; returns the exit code."""
    arguments = command_first(arguments)
    named = [command for command in COMMANDS if command.name in arguments]
    # To parse the names of all commands takes a hundredth of a second.
    first = [command for command in named if command.name == arguments[0]]
    if arguments and not first and not arguments[0].startswith("-"):
        parser((), ()).error(unknown_command(arguments[0]))
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


def unknown_command(word: str) -> str:
    """Return the message for a command that does not exist, with those that may be meant."""
    import difflib

    names = [command.name for command in COMMANDS]
    told = f'unknown command "{word}" for "kedge"'
    if close := difflib.get_close_matches(word, names, n=3, cutoff=0.6):
        told += "\n\nDid you mean this?\n" + "\n".join(f"\t{name}" for name in close) + "\n"
    return told


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
        print(failure.said, file=sys.stderr)
        return failure.code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output, such as `head`, has seen enough.
        sys.stderr.close()
        return BROKEN_PIPE


def parser(
    named: Iterable[CliCommand] = COMMANDS, known: Iterable[CliCommand] = COMMANDS
) -> ArgumentParser:
    """Return the parser of the known commands, and of the flags of the named ones."""
    top = CommandParser(
        prog="kedge",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"kedge {__version__}")
    below = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    wanted = list(named)
    for command in known:
        part = below.add_parser(
            command.name,
            help=command.help,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if command in wanted:
            module = command.load()
            part.description, part.epilog = module.DESCRIPTION, f"examples:\n{module.EXAMPLES}"
            module.add_flags(part)
    return top
