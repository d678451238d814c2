"""`kedge support-bundle`: its flags."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Final

from kedge.cli import flags

DESCRIPTION: Final = """\
Write a file with what a person who helps you needs: what the machine offers, the status, records
and logs of a cluster, and its objects. It works for a cluster that does not run, too.

There are no Secrets and no ConfigMaps in it, no values of variables, no arguments of containers,
no keys, tokens or passwords that can be recognized. Look at it before you pass it on: names of
objects, images and addresses are in it, and logs of kedge may quote other texts. Logs of your
containers are not in it."""
EXAMPLES: Final = """\
  # kedge-default-20260131-101500.tar.gz in the current directory
  kedge support-bundle

  # Another cluster, another file
  kedge support-bundle --name dev --file dev.tar.gz
  tar tzf dev.tar.gz"""


def add_flags(parser: ArgumentParser) -> None:
    flags.add_which(parser)
    parser.add_argument(
        "-f",
        "--file",
        type=Path,
        metavar="FILE",
        help="the file to write, which must not exist (default: kedge-NAME-TIME.tar.gz)",
    )


def run(flags: Namespace) -> int:
    import sys
    from itertools import chain

    from kedge.cli.cluster import registry
    from kedge.cli.config.cluster import where
    from kedge.cli.config.settings import Settings
    from kedge.cli.failure import Failure
    from kedge.cli.support import bundle
    from kedge.machinery.clock import SystemClock

    location = where(Settings(flags))
    directory = location.directory or registry.resolve(location.root, location.name)
    moment = SystemClock().now().strftime("%Y%m%d-%H%M%S")
    path: Path = flags.file or Path(f"kedge-{location.name}-{moment}.tar.gz")
    if not directory.exists():
        told = f"warning: {registry.absent(location)}. The bundle is about this machine alone."
        print(told, file=sys.stderr, flush=True)
    print("Collecting ...", file=sys.stderr, flush=True)
    parts = chain(
        bundle.machine_parts(location.root),
        bundle.cluster_parts(location, directory),
        bundle.object_parts(directory),
    )
    try:
        names = bundle.write(path, parts, bundle.secrets(directory))
    except FileExistsError as error:
        raise Failure(f"{path} exists already: choose another file with --file") from error
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror}") from error
    failed = [each for each in names if each.endswith(".failed")]
    note = f" ({len(failed)} could not be had: see *.failed)" if failed else ""
    print(f"{path} has {len(names)} files{note}. Look at it before you pass it on.")
    return 0
