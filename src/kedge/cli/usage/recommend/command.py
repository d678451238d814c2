"""`kedge recommend`: requests and limits that fit what workloads use, as patches."""

import argparse
from argparse import ArgumentParser, Namespace
from typing import Final

from kedge.cli.config.kubeconfig import client_config
from kedge.cli.config.settings import Settings
from kedge.cli.failure import Failure
from kedge.cli.objects import client_flags
from kedge.settings import parse

DESCRIPTION: Final = """\
Propose requests and limits for the containers of workloads and pods from their measured usage. The
request is the 95th percentile of the last day (of the last hour, if there is less data), the limit
the maximum plus headroom. A limit that was reached, so that processes were killed or held back, is
raised and never lowered.

For a named workload the output is a patch for kubectl, with the measurements as comments. Without a
name it is a table of all workloads of the namespace, or of all namespaces with -A: sizes before and
after, workloads without a proposal with the reason, and the sums of the requests. Workloads that
were measured for less than an hour get no proposal unless they are named (--min-evidence).

--apply patches the workloads one after the other. It first lets the server check the change and a
pod of the new template, so that LimitRanges, quotas and policies can refuse it. A refused one is
reported, the others are changed, and the exit code is 1."""
EXAMPLES: Final = """\
  # Look at it, then apply it
  kedge recommend deploy/web
  kedge recommend deploy/web > patch.yaml
  kubectl patch deploy/web --patch-file patch.yaml

  # A pod is resized where it runs
  kedge recommend pod/web > patch.yaml
  kubectl patch pod/web --subresource resize --patch-file patch.yaml

  # The last day, with the proposal drawn in
  kedge recommend deploy/web --plot

  # All workloads; the evidence; those with a label; CronJobs only
  kedge recommend -A
  kedge recommend -A -o wide
  kedge recommend -l app=web
  kedge recommend cronjobs -A

  # Let the server check all changes, then make them
  kedge recommend -A --apply --dry-run=server
  kedge recommend -A --apply

  # For programs: each item has its patch
  kedge recommend -A -o json"""


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "words",
        nargs="*",
        metavar="TYPE[/NAME]",
        help="a workload such as deploy/web, cronjob/nightly or pod/x, or types such as deploy,sts"
        " (default: all workloads, and pods that belong to none)",
    )
    client_flags.add_cluster(parser)
    client_flags.add_everywhere(parser)
    client_flags.add_label_selector(parser)
    parser.add_argument(
        "--headroom",
        type=percent,
        default=20,
        metavar="PERCENT",
        help="percentage by which limits exceed the maximum usage (default: 20)",
    )
    parser.add_argument(
        "--min-evidence",
        type=parse.seconds,
        metavar="DURATION",
        help="how long a workload must have been measured (default: 1h, for named ones 10s)",
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "wide", "patch", "yaml", "json"),
        default="",
        help="table, wide (with the evidence), patch, yaml or json (default: patch for named"
        " workloads, else table)",
    )
    parser.add_argument(
        "--plot",
        action="store_true",
        help="draw the last day (or hour) of the busiest pod of each workload, with the proposal",
    )
    parser.add_argument("--apply", action="store_true", help="change the workloads")
    client_flags.add_dry_run(parser)


def percent(value: str) -> int:

    digits = value.removesuffix("%")
    if not digits.isascii() or not digits.isdigit():
        raise argparse.ArgumentTypeError(f'"{value}" is not a percentage: give a number from 0 on')
    return int(digits)


def run(flags: Namespace) -> int:
    from kedge.cli.objects.connection import visit
    from kedge.cli.usage.recommend.show import RecommendOptions, show
    from kedge.cli.usage.unserved import of_kedge

    if flags.dry_run != "none" and not flags.apply:
        raise Failure("--dry-run needs --apply: without it, nothing is changed")
    if flags.apply and (flags.output or flags.plot):
        raise Failure("--apply prints what it changed: leave out -o and --plot")
    look = RecommendOptions(
        words=flags.words,
        headroom=flags.headroom,
        everywhere=flags.all_namespaces,
        labels=flags.selector,
        output=flags.output,
        min_seconds=flags.min_evidence,
        plot=flags.plot,
        apply=flags.apply,
        dry_run=flags.dry_run == "server",
    )
    return visit(client_config(Settings(flags)), lambda there: of_kedge(show(there, look)))
