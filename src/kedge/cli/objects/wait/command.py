"""`kedge wait`: its flags."""

from argparse import ArgumentParser, Namespace
from typing import Final

from kedge.cli.config.kubeconfig import client_config
from kedge.cli.config.settings import Settings
from kedge.cli.objects import client_flags
from kedge.settings import parse

DESCRIPTION: Final = """\
Wait until objects have a condition, a value, or are deleted, as 'kubectl wait' does. The command
fails when the time is over; the message names the object that has not reached it."""
EXAMPLES: Final = """\
  # A pod is ready, a Deployment available
  kedge wait pod/web --for=condition=Ready
  kedge wait deploy/web --for=condition=Available --timeout 60s

  # All pods of an app
  kedge wait pods -l app=web --for=condition=Ready

  # A value, and the end of an object
  kedge wait pod/web --for=jsonpath='{.status.phase}'=Running
  kedge wait pod/web --for=delete"""


def add_flags(parser: ArgumentParser) -> None:
    client_flags.add_words(parser, required=True)
    parser.add_argument(
        "--for",
        dest="condition",
        required=True,
        metavar="CONDITION",
        help="condition=TYPE[=STATUS], jsonpath=PATH[=VALUE], create or delete",
    )
    parser.add_argument(
        "--timeout",
        type=parse.seconds,
        default=30.0,
        metavar="DURATION",
        help="how long to wait for all of them, such as 60s (default: 30s)",
    )
    client_flags.add_cluster(parser)
    client_flags.add_everywhere(parser)
    client_flags.add_selectors(parser)
    parser.add_argument("--all", action="store_true", help="all objects of the type")


def run(flags: Namespace) -> int:
    from kedge.cli.objects.connection import visit
    from kedge.cli.objects.wait import condition, waiting

    wanted = condition.parse(flags.condition)
    return visit(client_config(Settings(flags)), lambda there: waiting.wait(there, flags, wanted))
