"""`kedge restore`: its flags."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Final

from kedge.cli import flags

DESCRIPTION: Final = """\
Make a cluster of a file that 'kedge backup' wrote. 'kedge up' then starts it. A cluster of the same
name must not exist; with --name it gets another one, and can run beside the first. Clients trust it
as they trusted the first one: it has the same authority and the same administrator's token.

Data of volumes and images are not in a backup: claims have empty volumes, and images are pulled or
loaded again."""
EXAMPLES: Final = """\
  # In place of the cluster
  kedge down --purge && kedge restore before-upgrade.kedge && kedge up

  # Beside it, to look something up
  kedge restore before-upgrade.kedge --name old
  kedge up --name old --nodes 0"""


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="the file that kedge backup wrote")
    flags.add_which(parser)


def run(flags: Namespace) -> int:
    from kedge.cli.backup import archive
    from kedge.cli.cluster import registry
    from kedge.cli.config.cluster import where
    from kedge.cli.config.settings import Settings
    from kedge.settings import cluster

    source = Settings(flags)
    described = archive.describe(flags.file)
    location = where(source)
    name = source.get(cluster.NAME) or described.name
    directory = location.directory or registry.resolve(location.root, name)
    archive.restore(flags.file, described, name=name, directory=directory, root=location.root)
    named = "" if name == cluster.DEFAULT_NAME else f" --name {name}"
    print(
        f'Cluster "{name}" is restored to {directory}, as of {described.made:%Y-%m-%d %H:%M:%S}'
        f" UTC.\nStart it with:  kedge up{named}"
    )
    return 0
