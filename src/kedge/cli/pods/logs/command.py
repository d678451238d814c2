"""`kedge logs`: what the containers of a pod have said."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import Final

from kedge.cli.cluster import logs
from kedge.cli.config.kubeconfig import client_config
from kedge.cli.config.settings import Settings
from kedge.cli.failure import Failure
from kedge.cli.flags import add_setting
from kedge.cli.objects import client_flags
from kedge.machinery.durations import parse_duration
from kedge.settings import cluster

DESCRIPTION: Final = """\
Print the output of a container, as 'kubectl logs' does. If the pod has several containers and none
is named, it is the first one.

The words server, node, node/NAME, supervisor, supervisor/NAME and restarter stand for the logs of
the cluster's own processes on this machine, also of a cluster that does not run; --name says which
cluster. A pod with such a name is pod/NAME."""
EXAMPLES: Final = """\
  # All lines so far; the last ten lines and all new ones
  kedge logs web
  kedge logs web -f --tail 10

  # The last five minutes, each line with its time
  kedge logs web --since 5m --timestamps

  # The output of the container before it was restarted
  kedge logs web --previous

  # A pod of a Deployment, and all pods of an app
  kedge logs deploy/web
  kedge logs -l app=web --prefix

  # The API server of a cluster on this machine, and the agent of one of its nodes
  kedge logs server --tail 50
  kedge logs node/node-2 -f --name dev

  # One container of several, or all of them
  kedge logs web -c proxy
  kedge logs web --all-containers"""


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "pod",
        nargs="?",
        default="",
        metavar="POD",
        help="name of the pod, or a workload such as deploy/web, of which one pod is shown",
    )
    client_flags.add_label_selector(parser)
    for setting in (cluster.NAME, cluster.STATE, cluster.CONFIG):
        add_setting(parser, setting, setting.default)
    client_flags.add_cluster(parser)
    parser.add_argument("-c", "--container", default="", metavar="NAME", help="which container")
    parser.add_argument("--all-containers", action="store_true", help="all containers of the pod")
    parser.add_argument(
        "-f",
        "--follow",
        action="store_true",
        help="follow the output until the container ends or Ctrl-C",
    )
    parser.add_argument(
        "--tail", type=_lines, metavar="N", help="only the last lines; -1 for all (default: all)"
    )
    parser.add_argument(
        "--since",
        type=_seconds,
        metavar="DURATION",
        help="only lines newer than this, such as 5s or 2h",
    )
    parser.add_argument(
        "-p", "--previous", action="store_true", help="print the output before the last restart"
    )
    parser.add_argument("--timestamps", action="store_true", help="show the time of each line")
    parser.add_argument(
        "--prefix",
        action="store_true",
        help="begin each line with the names of its pod and container",
    )


def _lines(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -2
    if number < -1:
        raise ArgumentTypeError("--tail must be greater than or equal to -1")
    return number


def _seconds(text: str) -> int:

    try:
        nanoseconds = parse_duration(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error
    if nanoseconds <= 0:
        raise ArgumentTypeError("--since must be greater than 0")
    return -(-nanoseconds // 10**9)


def run(flags: Namespace) -> int:
    if own := logs.component(flags.pod):
        return _show_own(flags, *own)
    from kedge.cli.objects.connection import visit
    from kedge.cli.pods.logs.show import LogFlags, show

    if bool(flags.pod) == bool(flags.selector):
        raise Failure("expected either a POD or workload, or a selector with -l: give one of them")
    if flags.container and flags.all_containers:
        raise Failure("--all-containers=true should not be specified with container name")
    asked = LogFlags(
        pod=flags.pod,
        labels=flags.selector,
        container=flags.container,
        everyone=flags.all_containers,
        follow=flags.follow,
        previous=flags.previous,
        timestamps=flags.timestamps,
        tail=flags.tail,
        since=flags.since,
        prefix=flags.prefix,
    )
    return visit(client_config(Settings(flags)), lambda there: show(there, asked))


def _show_own(flags: Namespace, name: str, node: str) -> int:
    """Print the log of a process of the cluster itself, from its directory."""
    from kedge.cli.cluster import registry
    from kedge.cli.config.cluster import place, where

    others = {"container": "-c", "previous": "-p", "since": "--since", "selector": "-l"}
    for attribute, flag in others.items():
        if getattr(flags, attribute):
            raise Failure(f"{flag} is for containers: the log of {name} takes --tail and --follow")
    source = Settings(flags)
    directory = place(source)[1]
    if not directory.exists():
        raise registry.absent(where(source))
    path = logs.component_log(directory, name, node)
    logs.show_log(path, tail=flags.tail, follow=flags.follow)
    return 0
