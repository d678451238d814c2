"""`kedge why`: why a pod is on its node, or on none, or slow."""

from argparse import ArgumentParser, Namespace
from typing import Final

from kedge.cli.config.kubeconfig import client_config
from kedge.cli.config.settings import Settings
from kedge.cli.objects import client_flags

DESCRIPTION: Final = """\
Explain how the scheduler decided about a pod: which filter refused which node and why, how each
score rated the others, and the usage of each node at that moment.

The scheduler keeps its last thousand decisions in memory. If it no longer has the decision, the
command shows how it would decide now, and says so. The caller needs the right to get
schedulingdecisions of the group scheduling.kedge.

With --slow, the command explains from the measured usage why a running pod is slow: its cpu limit,
its neighbours, its memory limit, pressure on memory, OOM kills or a disk, each with the numbers and
with the command that would help."""
EXAMPLES: Final = """\
  # A pod that is pending, or one that runs
  kedge why web-0

  # Why is it slow?
  kedge why web-0 --slow

  # For a program
  kedge why web-0 -n shop -o json"""


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("pod", metavar="POD", help="the pod, with or without pod/ before its name")
    client_flags.add_cluster(parser)
    parser.add_argument(
        "--slow", action="store_true", help="explain from its usage why a running pod is slow"
    )
    parser.add_argument(
        "-o", "--output", choices=("json",), default="", help="print JSON, for programs"
    )


def run(flags: Namespace) -> int:
    from kedge.cli.objects.connection import visit
    from kedge.cli.pods.why import show, slow

    explain = slow.show if flags.slow else show.show
    as_json = flags.output == "json"
    return visit(client_config(Settings(flags)), lambda there: explain(there, flags.pod, as_json))
