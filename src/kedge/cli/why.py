"""`kedge why`: why a pod is on its node, or on none."""

from argparse import ArgumentParser, Namespace
from typing import Final

from kedge.cli import client_flags
from kedge.cli.client_flags import Whereto

NAME: Final = "why"
HELP: Final = "Say why a pod is on its node, or on none"
DESCRIPTION: Final = """\
Say how the scheduler decided about a pod: which filter refused which node and why, what each score
gave the others, and what of it was used, as measured at that moment.

A decision is kept in memory by the scheduler that made it, the last thousand of them. If it is not
known any more, what would be decided now is shown, and said to be that. Whoever asks needs the
right to get the path /kedge/scheduling/v1/decisions/NAMESPACE/POD."""
EXAMPLES: Final = """\
  # A pod that is pending, or one that runs
  kedge why web-0

  # For a program
  kedge why web-0 -n shop -o json"""


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("pod", metavar="POD", help="the pod, with or without pod/ before its name")
    client_flags.add_cluster(parser)
    parser.add_argument(
        "-o", "--output", choices=("json",), default="", help="print JSON, for programs"
    )


def run(whereto: Whereto, flags: Namespace) -> int:
    from kedge.cli import connection, reasoning

    as_json = flags.output == "json"
    return connection.visit(whereto, lambda there: reasoning.show(there, flags.pod, as_json))
