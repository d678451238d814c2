"""`kedge rollout`: its subcommands and flags."""

from argparse import ArgumentParser, Namespace
from typing import Final

from kedge.cli.config.kubeconfig import client_config
from kedge.cli.config.settings import Settings
from kedge.cli.objects import client_flags
from kedge.settings import parse

DESCRIPTION: Final = """\
Follow and change the rollout of a Deployment, DaemonSet or StatefulSet, as 'kubectl rollout' does.

status   wait until all pods are of the newest revision and available
history  list the revisions, or with --revision the pod template of one
restart  replace all pods by new ones
undo     go back to the revision before, or with --to-revision to another one
pause    stop the rollout of a Deployment
resume   continue it"""
EXAMPLES: Final = """\
  # Wait until the new pods are available, for at most a minute
  kedge rollout status deploy/web --timeout 60s

  # New pods of the same revision
  kedge rollout restart deploy/web

  # Back to the revision before, or to the second one
  kedge rollout history deploy/web
  kedge rollout undo deploy/web
  kedge rollout undo deploy/web --to-revision 2"""

ACTIONS: Final = ("status", "history", "restart", "undo", "pause", "resume")


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=ACTIONS, metavar="ACTION", help=", ".join(ACTIONS))
    client_flags.add_words(parser, required=True)
    client_flags.add_cluster(parser)
    parser.add_argument(
        "--timeout",
        type=parse.seconds,
        metavar="DURATION",
        help="status: how long to wait, such as 60s (default: without limit)",
    )
    parser.add_argument(
        "-w",
        "--watch",
        choices=("true", "false"),
        default="true",
        help="status: whether to wait until the rollout is done (default: true)",
    )
    parser.add_argument(
        "--revision",
        type=int,
        default=0,
        metavar="N",
        help="status: fail if another revision is rolled out; history: show this revision",
    )
    parser.add_argument(
        "--to-revision", type=int, default=0, metavar="N", help="undo: the revision to go back to"
    )
    client_flags.add_dry_run(parser)


def run(flags: Namespace) -> int:
    from kedge.cli.objects.connection import visit
    from kedge.cli.workloads.rollout.work import rollout

    return visit(client_config(Settings(flags)), lambda there: rollout(there, flags))
