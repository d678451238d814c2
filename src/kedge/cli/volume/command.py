"""`kedge volume`: the claims and volumes of a cluster, snapshots, and the usage of disks."""

from argparse import ArgumentParser, Namespace, _SubParsersAction
from typing import Final

from kedge.cli import flags as shared_flags
from kedge.cli.objects import client_flags

DESCRIPTION: Final = """\
List claims and volumes, copy them, and show how much data local volumes hold.

'list' asks the cluster that the kubeconfig leads to. It lists each claim with its volume, the nodes
that can mount the volume and the pods that use the claim, then the volumes without a claim.

'du' measures the volumes that kedge made on this machine. The cluster does not have to run.

'snapshot' makes a claim with a copy of the data of another, as soon as no pod uses that one.
'restore' makes a claim with the data of a snapshot; it changes no claim that exists. 'snapshots'
lists them; delete one with 'kubectl delete pvc NAME'."""
_SECONDS: Final = 600.0
EXAMPLES: Final = """\
  # All claims and volumes, or those of one namespace
  kedge volume list
  kedge volume list -n shop -o json

  # Keep the data of a claim, and begin a new claim with them
  kedge volume snapshot data before-upgrade
  kedge volume snapshots
  kedge volume restore before-upgrade data-2

  # Bytes on the disk of this machine
  kedge volume du
  kedge volume du --name other"""


def add_flags(parser: ArgumentParser) -> None:
    below = parser.add_subparsers(
        dest="deed", metavar="list|snapshot|restore|snapshots|du", required=True
    )
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
    _add_copies(below)
    usage = below.add_parser("du", help="show the disk usage of local volumes", allow_abbrev=False)
    shared_flags.add_which(usage)
    shared_flags.add_output(usage)


def _add_copies(below: "_SubParsersAction[ArgumentParser]") -> None:
    taking = below.add_parser("snapshot", help="copy the data of a claim", allow_abbrev=False)
    taking.add_argument("claim", metavar="CLAIM", help="the claim to copy")
    taking.add_argument(
        "copy", metavar="NAME", nargs="?", default="", help="default: CLAIM with date and time"
    )
    restoring = below.add_parser(
        "restore", help="make a claim with the data of a snapshot", allow_abbrev=False
    )
    restoring.add_argument("snapshot", metavar="SNAPSHOT", help="the snapshot, or any claim")
    restoring.add_argument("claim", metavar="CLAIM", help="the claim to make")
    for parser in (taking, restoring):
        parser.add_argument(
            "--timeout",
            type=float,
            default=_SECONDS,
            metavar="SECONDS",
            help=f"time to wait for the copy (default: {_SECONDS:g})",
        )
        client_flags.add_cluster(parser)
    client_flags.add_cluster(
        below.add_parser("snapshots", help="list snapshots", allow_abbrev=False)
    )


def run(flags: Namespace) -> int:
    match flags.deed:
        case "du":
            return _du(flags)
        case "list":
            return _list(flags)
        case _:
            return _copies(flags)


def _copies(flags: Namespace) -> int:
    from kedge.cli.config.kubeconfig import client_config
    from kedge.cli.config.settings import Settings
    from kedge.cli.objects.connection import visit
    from kedge.cli.volume import snapshot

    cluster = client_config(Settings(flags))
    match flags.deed:
        case "snapshot":
            took = (flags.claim, flags.copy, flags.timeout)
            return visit(cluster, lambda there: snapshot.take(there, *took))
        case "restore":
            restored = (flags.snapshot, flags.claim, flags.timeout)
            return visit(cluster, lambda there: snapshot.restore(there, *restored))
        case _:
            return visit(cluster, snapshot.show)


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
