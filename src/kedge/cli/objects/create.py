"""`kedge create`: new objects, from manifests."""

import sys
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Final

from kedge.cli.config.kubeconfig import client_config
from kedge.cli.config.settings import Settings
from kedge.cli.objects import client_flags

DESCRIPTION: Final = """\
Create the objects that files describe, in YAML or JSON, in the cluster that the kubeconfig leads
to. It is an error if an object exists already: use 'kedge apply' to change it."""
EXAMPLES: Final = """\
  kedge create -f limit-range.json

  # All manifests of a directory; from standard input
  kedge create -f manifests/
  generate | kedge create -f -

  # Only check whether the server accepts it, and print the result
  kedge create -f pod.yaml --dry-run=server -o yaml"""


def add_flags(parser: ArgumentParser) -> None:
    client_flags.add_files(parser, required=False)
    # Not a part of the usage: these are words of 'kubectl create', which deserve an answer.
    parser.add_argument("words", nargs="*", help=SUPPRESS)
    parser.set_defaults(refuse=parser.error)
    client_flags.add_cluster(parser)
    client_flags.add_dry_run(parser)
    client_flags.add_written(parser)


def _refusal(words: Sequence[str]) -> str:
    import shlex

    command = shlex.join(["kedge", "kubectl", "create", *words])
    return f"'kedge create' takes files, with -f; objects by name are kubectl's: '{command}'"


def run(flags: Namespace) -> int:
    from kedge.cli.objects import manifests
    from kedge.cli.objects import write as writing
    from kedge.cli.objects.connection import visit

    if flags.words:
        flags.refuse(_refusal(flags.words))
    if not flags.filename:
        flags.refuse("the following arguments are required: -f/--filename")
    asked = writing.WriteOptions(
        manifests=manifests.read(flags.filename, sys.stdin, recursive=flags.recursive),
        dry_run=flags.dry_run == "server",
        output=flags.output,
    )
    return visit(client_config(Settings(flags)), lambda there: writing.create(there, asked))
