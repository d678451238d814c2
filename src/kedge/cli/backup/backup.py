"""`kedge backup`: its flags."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Final

from kedge.cli import flags

DESCRIPTION: Final = """\
Write the objects of a cluster, its keys and its administrator's token to a file, also while it
runs: the file has everything that was acknowledged before the command began, as of one moment.
'kedge restore' makes a cluster of it.

Data of volumes, images and logs are not in it. The file has the keys of the cluster, so it is for
its owner only (mode 0600). With encryption at rest, keep the keys of that apart: they are not in
the file."""
EXAMPLES: Final = """\
  kedge backup before-upgrade.kedge
  kedge backup dev.kedge --name dev"""


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="the file to write; must not exist")
    flags.add_which(parser)


def run(flags: Namespace) -> int:
    from kedge.cli.backup import archive
    from kedge.cli.cluster import volume_data
    from kedge.cli.config.cluster import place
    from kedge.cli.config.settings import Settings
    from kedge.cli.output.printers import size
    from kedge.machinery.clock import SystemClock

    directory = place(Settings(flags))[1]
    described = archive.write(directory, flags.file.absolute(), SystemClock().now())
    print(f'Cluster "{described.name}" is in {flags.file} ({size(flags.file.stat().st_size)}).')
    if volume_data.stored([directory]):
        print("The data of its volumes is not in it: see 'kedge volume du'.")
    return 0
