"""`kedge requests`: the requests that a cluster for tests has answered."""

from argparse import ArgumentParser, Namespace
from typing import Final

from kedge.cli import flags as shared_flags
from kedge.cli.objects import client_flags
from kedge.settings import parse

DESCRIPTION: Final = """\
Show the requests that a cluster for tests has answered, the newest last.

The cluster must have been started with 'kedge up --testing', and you must be its administrator. It
remembers the last 10,000 requests: who made them, with which outcome, how long they took, and
whether a write changed anything."""
EXAMPLES: Final = """\
  # The requests of one controller, or of one service account
  kedge requests --user-agent my-operator
  kedge requests --service-account shop/operator --verbs update,patch

  # The requests after the one with this number, with their patches
  kedge requests --since 1200 -o json"""

_TEXTS: Final = (
    ("--resource", "RESOURCE", "such as pods, pods/status or deployments.apps (default: all)"),
    ("--name", "NAME", "the name of the object (default: any)"),
    ("--user", "USER", "the user who asked; * at the end stands for any rest (default: any)"),
    ("--service-account", "NAMESPACE/NAME", "the service account that asked (default: any)"),
    ("--user-agent", "TEXT", "how the user agent of the client begins (default: any)"),
    ("--since", "NUMBER|TIME", "only requests from this number or time on (default: all)"),
)


def add_flags(parser: ArgumentParser) -> None:
    for flag, metavar, text in _TEXTS:
        parser.add_argument(flag, default="", metavar=metavar, help=text)
    parser.add_argument(
        "-n", "--namespace", default="", metavar="NAMESPACE", help="of the object (default: any)"
    )
    parser.add_argument(
        "--verbs",
        type=parse.items,
        default=(),
        metavar="LIST",
        help="comma-separated (default: all)",
    )
    shared_flags.add_output(parser)
    client_flags.add_context(parser)


def run(flags: Namespace) -> int:
    from kedge.cli.config.kubeconfig import client_config
    from kedge.cli.config.settings import Settings
    from kedge.cli.objects.connection import visit
    from kedge.cli.requests.show import showing

    deed = showing(flags)
    # The flag names the namespace of objects here, and not that of the context.
    flags.namespace = ""
    return visit(client_config(Settings(flags)), deed)
