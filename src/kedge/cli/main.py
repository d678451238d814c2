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

    def load(self) -> CommandModule:
        return cast(CommandModule, importlib.import_module(f"kedge.cli.{self.module}"))


COMMANDS: Final = (
    CliCommand("up", "cluster.up.command", "Start a cluster and point kubectl at it"),
    CliCommand("down", "cluster.down", "Stop a cluster and remove it from the kubeconfig"),
    CliCommand("run", "cluster.run", "Run a command with a throw-away cluster"),
    CliCommand("envtest", "envtest.command", "Print a directory for $KUBEBUILDER_ASSETS"),
    CliCommand("status", "cluster.status", "Show whether a cluster runs, and where"),
    CliCommand("list", "cluster.list", "List the clusters on this machine"),
    CliCommand("doctor", "doctor.command", "Show what this machine lacks, and how to mend it"),
    CliCommand("get", "objects.get.command", "Show objects of the cluster"),
    CliCommand("describe", "objects.describe.command", "Describe objects of the cluster in detail"),
    CliCommand("create", "objects.create", "Create objects from files"),
    CliCommand("apply", "objects.apply", "Create or update objects from files"),
    CliCommand("delete", "objects.delete.command", "Delete objects of the cluster"),
    CliCommand("namespace", "objects.namespace.command", "Show or change the current namespace"),
    CliCommand("explain", "explain.command", "Explain where limits or variables come from"),
    CliCommand("logs", "pods.logs.command", "Show the logs of a container"),
    CliCommand("exec", "pods.exec.command", "Run a command in a container"),
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
    CliCommand("version", "version", "Print the version of kedge and of Kubernetes"),
)

DESCRIPTION: Final = """\
kedge runs a Kubernetes-compatible cluster on this machine.

'kedge up' starts one and points kubectl at it; 'kedge down' stops it."""

EPILOG: Final = """\
Use "kedge COMMAND --help" for the flags of a command and for examples."""

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
    named = [command for command in COMMANDS if command.name in arguments]
    # To parse the names of all commands takes a hundredth of a second.
    first = [command for command in named if command.name == arguments[0]]
    top = parser(named, first or COMMANDS)
    flags = top.parse_args(arguments)
    if flags.command is None:
        top.print_help()
        return 0
    return report(next(each for each in named if each.name == flags.command).load(), flags)


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
