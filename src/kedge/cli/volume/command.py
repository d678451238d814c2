"""`kedge volume`: the claims and volumes of a cluster, and the disk usage of local volumes."""

from argparse import ArgumentParser, Namespace
from typing import Final

from kedge.cli import flags as shared_flags
from kedge.cli.objects import client_flags

DESCRIPTION: Final = """\
List claims and volumes, and show how much data local volumes hold.

'list' asks the cluster that the kubeconfig leads to. It lists each claim with its volume, the nodes
that can mount the volume and the pods that use the claim, then the volumes without a claim.

'du' measures the volumes that kedge made on this machine. The cluster does not have to run."""
EXAMPLES: Final = """\
  # All claims and volumes, or those of one namespace
  kedge volume list
  kedge volume list -n shop -o json

  # Bytes on the disk of this machine
  kedge volume du
  kedge volume du --name other"""


def add_flags(parser: ArgumentParser) -> None:
    below = parser.add_subparsers(dest="deed", metavar="list|du", required=True)
    listing = below.add_parser("list", help="list claims and volumes", allow_abbrev=False)
    listing.add_argument(
        "-n",
        "--namespace",
        default="",
        metavar="NAMESPACE",
        help="only claims of this namespace, and their volumes (default: all namespaces)",
    )
    client_flags.add_context(listing)
    shared_flags.add_output(listing)
    usage = below.add_parser("du", help="show the disk usage of local volumes", allow_abbrev=False)
    shared_flags.add_which(usage)
    shared_flags.add_output(usage)


def run(flags: Namespace) -> int:
    return _du(flags) if flags.deed == "du" else _list(flags)


def _list(flags: Namespace) -> int:
    from kedge.cli.config.kubeconfig import client_config
    from kedge.cli.config.settings import Settings
    from kedge.cli.objects.connection import visit
    from kedge.cli.volume.claim_list import show

    cluster = client_config(Settings(flags))
    return visit(cluster, lambda there: show(there, flags.namespace, flags.output))


def _du(flags: Namespace) -> int:
    from kedge.cli.config.cluster import where
    from kedge.cli.config.settings import Settings
    from kedge.cli.volume.disk_usage import show

    return show(where(Settings(flags)), flags.output)
