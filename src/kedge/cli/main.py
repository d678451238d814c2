"""The command line as a whole: which commands there are, how they are read, how they fail."""

import argparse
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NoReturn, Protocol

from kedge import __version__
from kedge.cli import (
    apply,
    create,
    delete,
    describe,
    device,
    down,
    exec,
    explain,
    get,
    image,
    list,
    logs,
    metrics_server,
    namespace,
    node,
    recommend,
    server,
    status,
    token,
    top,
    up,
    version,
    why,
)
from kedge.cli.client_flags import Whereto
from kedge.cli.failure import Failure


class Command(Protocol):
    """What each command's module says about it."""

    NAME: str
    HELP: str
    DESCRIPTION: str
    EXAMPLES: str

    def add_flags(self, parser: ArgumentParser) -> None:
        """Declare the command's flags."""
        ...


class Visitor(Command, Protocol):
    """A command that speaks to a cluster through a kubeconfig."""

    def run(self, whereto: Whereto, flags: Namespace) -> int:
        """Do it; returns the exit code."""
        ...


COMMANDS: Final[tuple[Command, ...]] = (
    *(up, down, status, list),
    *(get, describe, create, apply, delete, namespace, explain),
    *(logs, exec),
    *(top, recommend, why),
    *(image, device, token, server, node, metrics_server, version),
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

Deed = Callable[[Namespace], int]


class Parser(ArgumentParser):
    """Takes flags and words in any order, and complains in the manner of kubectl."""

    _sorting = False

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Namespace | None = None
    ) -> tuple[Namespace, Sequence[str]]:
        # What sorts words from flags comes back here, once for each.
        if self._sorting or self._subparsers is not None:
            return super().parse_known_args(args, namespace)
        given: Sequence[str] = sys.argv[1:] if args is None else args
        line: Sequence[str] = ()
        if self.get_default("line") is not None and "--" in given:
            # What follows belongs to another program, down to the last dash.
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


def run(arguments: Sequence[str], deeds: Mapping[str, Deed]) -> int:
    """Read the arguments, do the deed of the command they name; returns the exit code."""
    # Only what is asked for is declared: half of the time that this takes is for flags.
    top = parser(command for command in COMMANDS if command.NAME in arguments)
    flags = top.parse_args(arguments)
    if flags.command is None:
        top.print_help()
        return 0
    try:
        return deeds[flags.command](flags)
    except Failure as failure:
        print(failure.said, file=sys.stderr)
        return failure.code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output, such as `head`, has seen enough.
        sys.stderr.close()
        return BROKEN_PIPE


def parser(flagged: Iterable[Command] = COMMANDS) -> ArgumentParser:
    """The parser of all commands, and of the flags of those that are named."""
    names = {command.NAME for command in flagged}
    top = Parser(
        prog="kedge",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"kedge {__version__}")
    below = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for command in COMMANDS:
        part = below.add_parser(
            command.NAME,
            help=command.HELP,
            description=command.DESCRIPTION,
            epilog=f"examples:\n{command.EXAMPLES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if command.NAME in names:
            command.add_flags(part)
    return top
