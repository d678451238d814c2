"""`kedge explain limits`: where the requests and limits of a manifest's pods come from."""

from argparse import ArgumentParser, Namespace
from typing import Final

from kedge.cli import client_flags
from kedge.cli.client_flags import Whereto

NAME: Final = "explain"
HELP: Final = "Explain what LimitRanges do to the pods of a manifest"
DESCRIPTION: Final = """\
Print where each request and limit of each container would come from (the manifest, its limit, or a
LimitRange of the namespace), what the pod asks for in all, and every constraint of a LimitRange
that it violates. Files may hold pods, claims, and workloads, whose pods are explained; other kinds
are passed over. The exit code is 1 if anything would be refused.

Nothing is created. With --dry-run=server the server is asked too, and its word counts: it may run
without LimitRanger, and it knows more reasons to refuse a pod."""
EXAMPLES: Final = """\
  kedge explain limits -f pod.yaml
  kedge explain limits -n team-a -f deployment.yaml --dry-run=server"""


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("topic", choices=("limits",), metavar="limits", help="what to explain")
    client_flags.add_files(parser, required=True)
    client_flags.add_cluster(parser)
    client_flags.add_dry_run(parser)


def run(whereto: Whereto, flags: Namespace) -> int:
    import sys

    from kedge.cli import connection, explaining, manifests

    read = manifests.read(flags.filename, sys.stdin, recursive=flags.recursive)
    ask = flags.dry_run == "server"
    return connection.visit(whereto, lambda there: explaining.explain(there, read, ask=ask))
