"""`kedge apply`: objects as manifests say, whether they are there already or not."""

import sys
from argparse import ArgumentParser, Namespace
from typing import Final

from kedge.cli.config.kubeconfig import client_config
from kedge.cli.config.settings import Settings
from kedge.cli.objects import client_flags

DESCRIPTION: Final = """\
Create the objects that files describe, or change existing ones to match. The server computes the
change (server-side apply, as field manager "kedge"): fields that are no longer in the file are
removed, and fields of other managers stay. If another manager has set a field to a different value,
the object does not change and the conflict is reported; --force-conflicts takes the field over."""
EXAMPLES: Final = """\
  kedge apply -f web.yaml
  kedge apply -f manifests/ --recursive
  kedge apply -f web.yaml --dry-run=server
  kedge apply -f web.yaml --force-conflicts"""


def add_flags(parser: ArgumentParser) -> None:
    client_flags.add_files(parser, required=True)
    client_flags.add_cluster(parser)
    parser.add_argument(
        "--server-side",
        action="store_true",
        help="print the outcome in kubectl's words for server-side apply, which is always used",
    )
    parser.add_argument(
        "--force-conflicts",
        action="store_true",
        help="take over fields that other managers have set to other values",
    )
    client_flags.add_dry_run(parser)
    client_flags.add_written(parser)


def run(flags: Namespace) -> int:
    from kedge.cli.objects import manifests
    from kedge.cli.objects import write as writing
    from kedge.cli.objects.connection import visit

    asked = writing.WriteOptions(
        manifests=manifests.read(flags.filename, sys.stdin, recursive=flags.recursive),
        dry_run=flags.dry_run == "server",
        output=flags.output,
        force=flags.force_conflicts,
        by_the_book=flags.server_side,
    )
    return visit(client_config(Settings(flags)), lambda there: writing.apply(there, asked))
