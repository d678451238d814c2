"""`kedge top`: what nodes, pods, containers and claims use, live."""

import os
import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Final

from kedge.cli.config.kubeconfig import client_config
from kedge.cli.config.settings import Settings
from kedge.cli.failure import Failure
from kedge.cli.objects import client_flags
from kedge.metrics.windows import STATISTICS, WINDOWS

if TYPE_CHECKING:
    from kedge.cli.objects.connection import ApiSession
    from kedge.cli.usage.lines import TopOptions

DESCRIPTION: Final = """\
Show the usage of nodes, pods, containers and claims in the last ten seconds, minute, hour or day.
At a terminal, nodes and pods are a live view: Enter leads from a node to its pods and containers,
l shows logs, w why a pod is where it is, ? all keys, q quits. Bars compare the usage with requests
and limits. Kinds, claims and -o wide are a table there that is repainted whenever a node reports,
until Ctrl-C. Without a terminal, or with --once, the table is printed once. Columns such as CPU/REQ
show the usage as a share of the request or the limit. For a kind such as deployments, the usage of
all its pods is added up: the mean is exact, max and 95th are the most that it can be."""
EXAMPLES: Final = """\
  # The nodes; the pods of the current namespace, and of all (keys: press ?)
  kedge top
  kedge top pods
  kedge top pods -A --sort-by memory

  # The pods of one node
  kedge top node-1

  # All pods of each Deployment, and of each namespace
  kedge top deploy
  kedge top namespaces

  # How full claims are
  kedge top pvc

  # Disk, network and throttling as well
  kedge top pods -o wide

  # The maximum of each container during the last day, for a script
  kedge top pods --containers --window 1d --statistic max --once
  kedge top pods -o json

  # Record usage for 'kedge simulate'
  kedge top pods -A -o json --watch > day.jsonl"""


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "what",
        nargs="?",
        default="nodes",
        metavar="nodes|pods|pvc|KIND|NODE",
        help="nodes (default), pods, pvc (claims), a kind whose pods are added up (deployments, "
        "statefulsets, daemonsets, replicasets, jobs, cronjobs, services, namespaces, qosclasses), "
        "or a node whose pods are to be shown",
    )
    client_flags.add_cluster(parser)
    client_flags.add_everywhere(parser)
    client_flags.add_label_selector(parser)
    parser.add_argument(
        "--window", choices=tuple(WINDOWS), default="1m", help="window of time (default: 1m)"
    )
    parser.add_argument(
        "--statistic",
        choices=STATISTICS,
        default="mean",
        help="statistic of the window (default: mean)",
    )
    parser.add_argument(
        "--sort-by",
        choices=("cpu", "memory", "name"),
        default="cpu",
        help="sort order (default: cpu; claims: used bytes unless by name)",
    )
    parser.add_argument("--containers", action="store_true", help="one line per container")
    parser.add_argument("--once", action="store_true", help="print once and exit")
    parser.add_argument(
        "-o",
        "--output",
        choices=("wide", "json"),
        default="",
        help="wide: also disk, network, throttled periods and the node; or JSON",
    )
    parser.add_argument(
        "--watch",
        action="store_true",
        help="with -o json: print a line of JSON whenever nodes have reported, until Ctrl-C",
    )
    parser.add_argument("--no-headers", action="store_true", help="leave out the headings")


def run(flags: Namespace) -> int:
    from kedge.cli.objects.connection import visit
    from kedge.cli.usage.lines import TopOptions
    from kedge.cli.usage.top import claims
    from kedge.cli.usage.top.groups import KINDS
    from kedge.cli.usage.top.view import record, show
    from kedge.cli.usage.unserved import of_kedge

    if flags.watch and flags.output != "json":
        raise Failure("--watch needs -o json: without it, 'kedge top' is live at a terminal")
    look = TopOptions(
        what=flags.what,
        everywhere=flags.all_namespaces,
        labels=flags.selector,
        window=flags.window,
        statistic=flags.statistic,
        sort_by=flags.sort_by,
        containers=flags.containers,
        wide=flags.output == "wide",
        headings=not flags.no_headers,
        grouped=flags.what in KINDS or flags.what in claims.NAMES,
    )
    if flags.watch:
        return visit(client_config(Settings(flags)), lambda there: of_kedge(record(there, look)))
    live = not flags.once and flags.output != "json"
    as_json = flags.output == "json"
    opens_view = live and not (look.wide or look.grouped or flags.no_headers) and _has_terminal()
    return visit(
        client_config(Settings(flags)),
        lambda there: of_kedge(
            _open_view(there, look) if opens_view else show(there, look, live=live, as_json=as_json)
        ),
    )


def _has_terminal() -> bool:
    """Whether there is a terminal to draw on and to read keys from."""
    is_dumb = os.environ.get("TERM", "dumb") == "dumb"
    return sys.stdin.isatty() and sys.stdout.isatty() and not is_dumb


async def _open_view(there: "ApiSession", look: "TopOptions") -> int:
    """Open the live view; on a terminal that it cannot draw on, repaint a plain table."""
    from kedge.cli.usage.top.view import show

    try:
        from kedge.cli.usage.top.live.live_view import show_live
        from kedge.cli.usage.top.live.screen import UnusableTerminal
    except ModuleNotFoundError as error:
        # A Python that was built without curses.
        if error.name not in ("curses", "_curses"):
            raise
        return await show(there, look, live=True, as_json=False)
    try:
        return await show_live(there, look)
    except UnusableTerminal:
        return await show(there, look, live=True, as_json=False)
