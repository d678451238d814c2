"""`kedge list`: all clusters of this user on this machine."""

from argparse import ArgumentParser, Namespace
from typing import Final

from kedge.cli.flags import add_output

DESCRIPTION: Final = """\
List the clusters that this user has on this machine, running or not. A cluster of a newer version
of kedge, whose files this one does not know, has the status "Layout N"; one whose cluster.json is
lost or unreadable has the status "Damaged", and 'kedge up' makes that file again. 'kedge down
--purge' deletes either."""
EXAMPLES: Final = """\
  kedge list
  kedge list -o json"""


def add_flags(parser: ArgumentParser) -> None:
    add_output(parser)


def run(flags: Namespace) -> int:
    from kedge.cli.cluster import registry
    from kedge.cli.cluster.cluster_status import look, unknown
    from kedge.cli.config.settings import Settings
    from kedge.cli.output.printers import document, table
    from kedge.machinery.clock import SystemClock

    now, root = SystemClock().now(), Settings(flags).root()
    clusters = [look(found, now) for found in registry.every(root)]
    clusters += [unknown(found, f"Layout {layout}") for found, layout in registry.strange(root)]
    clusters += [unknown(found, "Damaged") for found in registry.damaged(root)]
    clusters.sort(key=lambda one: one.name)
    if flags.output:
        print(document({"items": clusters}, flags.output))
    elif clusters:
        rows = [
            (one.name, one.status, one.address or "-", one.uptime or "-", one.state)
            for one in clusters
        ]
        print(table([("NAME", "STATUS", "ADDRESS", "UPTIME", "STATE"), *rows]))
    else:
        print("There are no clusters here. Start one with: kedge up")
    return 0
