"""`kedge recommend`: requests and limits that fit what a workload uses, as a patch."""

from argparse import ArgumentParser, Namespace
from typing import Final

from kedge.cli import client_flags
from kedge.cli.client_flags import Whereto

NAME: Final = "recommend"
HELP: Final = "Propose requests and limits from what was used"
DESCRIPTION: Final = """\
Propose requests and limits for the containers of a workload or pod from what was used: requests
are what 95 of 100 samples of the last day did not exceed (of the last hour, while there is no
more), limits the most that was used and some room. What is printed is a patch that kubectl applies;
the evidence stands in its comments."""
EXAMPLES: Final = """\
  # Look at it, then apply it
  kedge recommend deploy/web
  kedge recommend deploy/web > patch.yaml
  kubectl patch deploy/web --patch-file patch.yaml

  # A pod is resized where it runs
  kedge recommend pod/web > patch.yaml
  kubectl patch pod/web --subresource resize --patch-file patch.yaml"""


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "target", metavar="TYPE/NAME", help="a workload such as deploy/web, or pod/x"
    )
    client_flags.add_cluster(parser)
    parser.add_argument(
        "--headroom",
        type=percent,
        default=20,
        metavar="PERCENT",
        help="how far limits lie above the most that was used (default: 20)",
    )


def percent(value: str) -> int:
    import argparse

    digits = value.removesuffix("%")
    if not digits.isascii() or not digits.isdigit():
        raise argparse.ArgumentTypeError(f'"{value}" is not a percentage: give a number from 0 on')
    return int(digits)


def run(whereto: Whereto, flags: Namespace) -> int:
    from kedge.cli import connection, recommending

    return connection.visit(
        whereto, lambda there: recommending.show(there, flags.target, flags.headroom)
    )
