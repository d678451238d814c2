"""`kedge list`: all clusters of this user on this machine."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Final

from kedge.cli.flags import add_output

NAME: Final = "list"
HELP: Final = "List the clusters on this machine"
DESCRIPTION: Final = "List the clusters that this user has on this machine, running or not."
EXAMPLES: Final = """\
  kedge list
  kedge list -o json"""


def add_flags(parser: ArgumentParser) -> None:
    add_output(parser)


def run(root: Path, output: str | None) -> int:
    from kedge.cli import registry
    from kedge.cli.observed import look
    from kedge.cli.printers import document, table
    from kedge.machinery.clock import SystemClock

    clusters = [look(found, SystemClock().now()) for found in registry.every(root)]
    if output:
        print(document({"items": clusters}, output))
    elif clusters:
        rows = [
            (one.name, one.status, one.address or "-", one.uptime or "-", one.state)
            for one in clusters
        ]
        print(table([("NAME", "STATUS", "ADDRESS", "UPTIME", "STATE"), *rows]))
    else:
        print("There are no clusters here. Start one with: kedge up")
    return 0
