"""`kedge describe`: details of objects for people to read."""

from argparse import ArgumentParser, Namespace
from typing import Final

from kedge.cli.config.kubeconfig import client_config
from kedge.cli.config.settings import Settings
from kedge.cli.objects import client_flags

DESCRIPTION: Final = """\
Describe objects of the cluster that the kubeconfig leads to, with their recent events. If no object
has the given name, all objects whose name begins with it are described."""
EXAMPLES: Final = """\
  # The minima and maxima of a namespace, then all columns of a LimitRange
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
        "--show-events",
        choices=("true", "false"),
        default="true",
        help="show events (default: true)",
    )


def run(flags: Namespace) -> int:
    from kedge.cli.objects.connection import visit
    from kedge.cli.objects.describe.show import DescribeOptions, show
    from kedge.machinery.clock import SystemClock

    asked = DescribeOptions(
        words=flags.words,
        everywhere=flags.all_namespaces,
        labels=flags.selector,
        wide=flags.output == "wide",
        events=flags.show_events == "true",
    )
    now = SystemClock().now()
    return visit(client_config(Settings(flags)), lambda there: show(there, asked, now))
