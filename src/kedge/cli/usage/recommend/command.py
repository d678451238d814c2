"""`kedge recommend`: requests and limits that fit what a workload uses, as a patch."""

import argparse
from argparse import ArgumentParser, Namespace
from typing import Final

from kedge.cli.config.kubeconfig import client_config
from kedge.cli.config.settings import Settings
from kedge.cli.objects import client_flags

DESCRIPTION: Final = """\
Propose requests and limits for the containers of a workload or pod from their measured usage. The
request is the 95th percentile of the last day (of the last hour, if there is less data), the limit
the maximum plus headroom. The output is a patch for kubectl, with the measurements as comments."""
EXAMPLES: Final = """\
  # Look at it, then apply it
  kedge recommend deploy/web
  kedge recommend deploy/web > patch.yaml
  kubectl patch deploy/web --patch-file patch.yaml

  # A pod is resized where it runs
  kedge recommend pod/web > patch.yaml
  kubectl patch pod/web --subresource resize --patch-file patch.yaml"""


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "target", metavar="TYPE/NAME", help="a workload such as deploy/web, or pod/x"
    )
    client_flags.add_cluster(parser)
    parser.add_argument(
        "--headroom",
        type=percent,
        default=20,
        metavar="PERCENT",
        help="percentage by which limits exceed the maximum usage (default: 20)",
    )


def percent(value: str) -> int:

    digits = value.removesuffix("%")
    if not digits.isascii() or not digits.isdigit():
        raise argparse.ArgumentTypeError(f'"{value}" is not a percentage: give a number from 0 on')
    return int(digits)


def run(flags: Namespace) -> int:
    from kedge.cli.objects.connection import visit
    from kedge.cli.usage.recommend.proposal import show

    return visit(
        client_config(Settings(flags)), lambda there: show(there, flags.target, flags.headroom)
    )
