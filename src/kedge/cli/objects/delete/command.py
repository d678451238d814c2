"""`kedge delete`: objects that are to go, and a command that stays until they have."""

import sys
from argparse import ArgumentParser, Namespace
from typing import Final

from kedge.cli.config.kubeconfig import client_config
from kedge.cli.config.settings import Settings
from kedge.cli.objects import client_flags
from kedge.settings import parse

DESCRIPTION: Final = """\
Delete objects, named by type and name, by a selector, or by the files that describe them. The
command returns when they are gone, which may take as long as their grace periods and finalizers."""
EXAMPLES: Final = """\
  kedge delete pod web
  kedge delete deployment/web service/web
  kedge delete -f web.yaml

  # Some, or all
  kedge delete pods -l app=web
  kedge delete configmaps --all -n scratch

  # At once, and whether it is there or not
  kedge delete pod web --force --ignore-not-found"""


def add_flags(parser: ArgumentParser) -> None:
    client_flags.add_words(parser, required=False)
    client_flags.add_files(parser, required=False)
    client_flags.add_cluster(parser)
    client_flags.add_everywhere(parser)
    client_flags.add_selectors(parser)
    parser.add_argument("--all", action="store_true", help="all objects of the type")
    parser.add_argument(
        "--grace-period",
        type=parse.count,
        metavar="SECONDS",
        help="grace period of the object (default: its own grace period)",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="remove the object at once, even if its processes cannot be stopped",
    )
    parser.add_argument(
        "--cascade",
        choices=("background", "foreground", "orphan"),
        default="background",
        help="delete dependents after the object, before it, or not at all (default: background)",
    )
    parser.add_argument(
        "--wait",
        choices=("true", "false"),
        default="true",
        help="whether to wait until the objects are gone (default: true)",
    )
    parser.add_argument(
        "--timeout",
        type=parse.seconds,
        metavar="DURATION",
        help="how long to wait, such as 10s (default: without limit)",
    )
    client_flags.add_ignore_not_found(parser)
    client_flags.add_dry_run(parser)
    parser.add_argument(
        "-o",
        "--output",
        type=client_flags.output("name"),
        default="",
        metavar="name",
        help="name: print TYPE/NAME only",
    )


def run(flags: Namespace) -> int:
    from kedge.cli.objects import manifests
    from kedge.cli.objects.connection import visit
    from kedge.cli.objects.delete.deletion import DeleteRequest, check, delete

    files = flags.filename
    asked = DeleteRequest(
        words=flags.words,
        manifests=manifests.read(files, sys.stdin, recursive=flags.recursive) if files else (),
        labels=flags.selector,
        fields=flags.field_selector,
        all=flags.all,
        everywhere=flags.all_namespaces,
        grace=flags.grace_period,
        force=flags.force,
        cascade=flags.cascade,
        wait=flags.wait == "true",
        timeout=flags.timeout,
        ignore_missing=flags.ignore_not_found,
        dry_run=flags.dry_run == "server",
        output=flags.output,
    )
    check(asked)
    return visit(client_config(Settings(flags)), lambda there: delete(there, asked))
