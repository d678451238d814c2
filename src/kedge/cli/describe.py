"""`kedge describe`: objects of the cluster, told in full for people to read."""

from argparse import ArgumentParser, Namespace
from typing import Final

from kedge.cli import client_flags
from kedge.cli.client_flags import Whereto

NAME: Final = "describe"
HELP: Final = "Describe objects of the cluster in detail"
DESCRIPTION: Final = """\
Describe objects of the cluster that the kubeconfig leads to, with what happened to them lately.
A name stands also for all names that begin with it, if nothing is called just that."""
EXAMPLES: Final = """\
  # The minima and maxima of a namespace, then all that a LimitRange says
  kedge describe limits limits
  kedge describe limits limits -o wide

  # A pod, a node, all services
  kedge describe pod web
  kedge describe node/worker
  kedge describe services"""


def add_flags(parser: ArgumentParser) -> None:
    client_flags.add_words(parser, required=True)
    client_flags.add_cluster(parser)
    client_flags.add_everywhere(parser)
    client_flags.add_label_selector(parser)
    parser.add_argument(
        "-o",
        "--output",
        type=client_flags.output("wide"),
        default="",
        metavar="wide",
        help="wide: all columns of a LimitRange, not only minimum and maximum",
    )
    parser.add_argument(
        "--show-events", choices=("true", "false"), default="true", help="default: true"
    )


def run(whereto: Whereto, flags: Namespace) -> int:
    from kedge.cli import connection, describing
    from kedge.machinery.clock import SystemClock

    asked = describing.Asked(
        words=flags.words,
        everywhere=flags.all_namespaces,
        labels=flags.selector,
        wide=flags.output == "wide",
        events=flags.show_events == "true",
    )
    now = SystemClock().now()
    return connection.visit(whereto, lambda there: describing.show(there, asked, now))
