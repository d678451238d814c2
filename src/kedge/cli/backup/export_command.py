"""`kedge export`: its flags."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kedge.cli import flags

if TYPE_CHECKING:
    from kedge.cli.backup.transfer import StoreFiles
    from kedge.storage.store import StoreEntry

DESCRIPTION: Final = """\
Copy the objects of a cluster, as of one moment, to an etcd, to a PostgreSQL database or to YAML.
Stop the cluster first if it is to move: changes after that moment are not copied.

To another store, objects are copied as they are stored, with their uids. 'kedge up --store'
continues the cluster there; on etcd, so does a kube-apiserver with
--storage-media-type=application/json and the keys in the directory 'pki' of the cluster. The store
must not have objects.

In YAML the status and the metadata that servers set are left out, and so are objects that a
controller makes again, so that 'kubectl apply' can create the others elsewhere. Addresses of
Services and nodes of pods stay. Secrets are in it.

Events are not copied: they expire."""
EXAMPLES: Final = """\
  # Move a cluster to an etcd
  kedge down --name dev
  kedge export etcd://127.0.0.1:2379 --name dev
  kedge up --name dev --store etcd://127.0.0.1:2379

  # All objects as YAML
  kedge export objects.yaml"""


def add_flags(parser: ArgumentParser) -> None:
    from kedge.apiserver.config import EtcdFiles, PostgresFiles
    from kedge.settings.parse import POSTGRESQL_FORM
    from kedge.settings.setting import bound_settings

    parser.add_argument(
        "target",
        metavar=f"FILE|etcd://HOST:PORT,...|{POSTGRESQL_FORM}",
        help="an empty store, or a file for YAML that must not exist; - for standard output",
    )
    flags.add_which(parser)
    flags.add_settings(parser, (*bound_settings(EtcdFiles), *bound_settings(PostgresFiles)))


def run(flags: Namespace) -> int:
    import asyncio

    from kedge.apiserver.config import EtcdFiles, PostgresFiles
    from kedge.cli.backup import portable, transfer
    from kedge.cli.cluster import server_parts, state
    from kedge.cli.cluster.integrity import DATABASE
    from kedge.cli.config.cluster import place
    from kedge.cli.config.settings import Settings
    from kedge.cli.failure import Failure
    from kedge.settings.parse import is_elsewhere

    source = Settings(flags)
    directory = place(source)[1]
    cluster = state.read(directory)
    if cluster is None:
        raise Failure(f"{directory} holds no cluster: 'kedge list' shows those of this machine")
    files = transfer.StoreFiles(source.fill(EtcdFiles), source.fill(PostgresFiles))
    if cluster.elsewhere:
        entries = asyncio.run(transfer.entries_elsewhere(cluster.elsewhere, files))
    elif (directory / DATABASE).exists():
        entries = asyncio.run(transfer.entries_of_database(directory))
    else:
        raise Failure(
            f'cluster "{cluster.name}" keeps its objects in memory, or has never run: there is'
            " nothing to export"
        )
    moving = portable.moving(entries)
    if is_elsewhere(flags.target):
        asyncio.run(_to_store(flags.target, files, moving))
        named = f" --name {cluster.name}"
        print(
            f"{len(moving)} objects are in {flags.target}.\n"
            f"Continue the cluster there:  kedge up{named} --store {flags.target}"
        )
        if server_parts.any_running(directory):
            print("The cluster runs: what changes from now on is not there.")
        return 0
    _to_yaml(flags.target, moving)
    return 0


async def _to_store(address: str, files: "StoreFiles", entries: "list[StoreEntry]") -> None:
    import argparse

    from kedge.cli.backup import transfer
    from kedge.cli.failure import Failure
    from kedge.settings import parse

    try:
        parse.store(address)
    except argparse.ArgumentTypeError as error:
        raise Failure(str(error)) from None
    async with transfer.opened(address, files) as store:
        await transfer.check_empty(store, address)
        await transfer.write_all(store, ((each.key, each.value) for each in entries))


def _to_yaml(target: str, entries: "list[StoreEntry]") -> None:
    import os
    import sys

    from kedge.cli.backup import portable
    from kedge.cli.failure import Failure
    from kedge.machinery import yaml_text

    try:
        texts = [yaml_text.write(each, sort=False) for each in portable.documents(entries)]
    except portable.UnreadableObject as error:
        raise Failure(str(error)) from error
    if target == "-":
        sys.stdout.write("---\n".join(texts))
        return
    try:
        # It has the secrets of the cluster.
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise Failure(f"cannot write {target}: {error.strerror}") from error
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write("---\n".join(texts))
    except OSError as error:
        os.unlink(target)
        raise Failure(f"cannot write {target}: {error.strerror}") from error
    print(f"{len(texts)} objects are in {Path(target)}, secrets among them.")
