"""`kedge clock`: the time of a cluster for tests."""

from argparse import ArgumentParser, Namespace
from typing import Final

from kedge.cli import flags as shared_flags
from kedge.cli.objects import client_flags
from kedge.settings import parse

DESCRIPTION: Final = """\
Show and move the time of a cluster for tests.

The cluster must have been started with 'kedge up --testing', and you must be its administrator. The
API server, the controllers and the scheduler follow this clock. Nodes and containers keep the time
of the machine."""
EXAMPLES: Final = """\
  # Let an hour pass: CronJobs are due, tokens and finished Jobs expire
  kedge clock advance 1h

  # Stop the time, and let it continue
  kedge clock freeze
  kedge clock resume

  kedge clock show"""


def add_flags(parser: ArgumentParser) -> None:
    below = parser.add_subparsers(dest="deed", metavar="show|advance|freeze|resume", required=True)
    moving = below.add_parser("advance", help="move the clock forward", allow_abbrev=False)
    moving.add_argument("advance", type=parse.seconds, metavar="DURATION", help="such as 90s or 1h")
    others = (
        below.add_parser("show", help="show the time of the cluster", allow_abbrev=False),
        below.add_parser("freeze", help="stop the clock", allow_abbrev=False),
        below.add_parser("resume", help="let the clock continue", allow_abbrev=False),
    )
    for each in (moving, *others):
        shared_flags.add_output(each)
        client_flags.add_context(each)


def run(flags: Namespace) -> int:
    from kedge.cli.clock.change import changing
    from kedge.cli.config.kubeconfig import client_config
    from kedge.cli.config.settings import Settings
    from kedge.cli.objects.connection import visit

    return visit(client_config(Settings(flags)), changing(flags))
