"""`kedge import`: its flags."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kedge.cli import flags

if TYPE_CHECKING:
    from collections.abc import Sequence

DESCRIPTION: Final = """\
Copy the objects in an etcd or a PostgreSQL database, as of one moment, to the SQLite file of a
cluster, which 'kedge up' then starts. The cluster must be new, or a stopped one whose objects are
not in a file. With --replace it may also be a stopped one with a file of its own, such as the one
that was exported.

The objects may be those of a kube-apiserver with --storage-media-type=application/json. Values in
protobuf and encrypted ones are refused. For tokens and certificates of that cluster to stay valid,
put its ca.crt, ca.key, sa.key and sa.pub into the directory 'pki' of the new one.

An earlier file is kept as store.db.old. Resource versions begin anew, so that
clients list again.

YAML needs no import: 'kubectl apply -f FILE' creates its objects. Events are not copied."""
EXAMPLES: Final = """\
  # Move a cluster back from etcd to a file
  kedge down --name dev
  kedge import etcd://127.0.0.1:2379 --name dev
  kedge up --name dev

  # The same after a kube-apiserver ran on the etcd
  kedge import etcd://127.0.0.1:2379 --name dev --replace"""


def add_flags(parser: ArgumentParser) -> None:
    from kedge.apiserver.config import EtcdFiles, PostgresFiles
    from kedge.settings import parse
    from kedge.settings.setting import bound_settings

    parser.add_argument(
        "source",
        type=parse.store,
        metavar=f"etcd://HOST:PORT,...|{parse.POSTGRESQL_FORM}",
        help="the store with the objects",
    )
    parser.add_argument(
        "--replace",
        action="store_true",
        help="replace the objects of a stopped cluster; store.db.old keeps them",
    )
    flags.add_which(parser)
    flags.add_settings(parser, (*bound_settings(EtcdFiles), *bound_settings(PostgresFiles)))


def run(flags: Namespace) -> int:
    import asyncio

    from msgspec.structs import replace

    from kedge.apiserver.config import EtcdFiles, PostgresFiles
    from kedge.cli.backup import portable, transfer
    from kedge.cli.cluster import registry, state
    from kedge.cli.cluster.integrity import DATABASE
    from kedge.cli.config.cluster import place, where
    from kedge.cli.config.settings import Settings
    from kedge.cli.failure import Failure
    from kedge.settings.parse import POSTGRESQL_FORM, is_elsewhere

    source = Settings(flags)
    if not is_elsewhere(flags.source):
        raise Failure(
            f"{flags.source} is not a store elsewhere: write etcd://HOST:PORT,... or"
            f" {POSTGRESQL_FORM}"
        )
    name, directory = place(source)
    root = where(source).root
    _check_target(directory, name, flags.replace)
    registry.check_free(root, name, directory)
    files = transfer.StoreFiles(source.fill(EtcdFiles), source.fill(PostgresFiles))
    entries = asyncio.run(transfer.entries_elsewhere(flags.source, files))
    try:
        objects = [(each.key, portable.normal_form(each)) for each in portable.coming(entries)]
    except portable.UnreadableObject as error:
        raise Failure(str(error)) from error
    if not objects:
        raise Failure(f"{flags.source} has no objects below {portable.ROOT}")
    state.prepare(directory, name)
    with state.changing(directory):
        # Again: the cluster may have been started while the objects were read.
        _check_target(directory, name, flags.replace)
        cluster = state.prepare(directory, name)
        _set_aside(directory)
        _make_database(directory, objects)
        if cluster.has_run:
            cluster = replace(cluster, kept=tuple(sorted({*cluster.kept, DATABASE})), elsewhere="")
            state.write(directory, cluster)
        registry.register(root, name, directory)
    print(
        f"{len(objects)} objects are in {directory / DATABASE}.\n"
        f"Start the cluster with:  kedge up --name {name}"
    )
    return 0


def _check_target(directory: Path, name: str, may_replace: bool) -> None:
    """Raise Failure if the cluster runs, or has objects of its own that must stay."""
    from kedge.cli.cluster import server_parts, state
    from kedge.cli.cluster.integrity import DATABASE
    from kedge.cli.failure import Failure

    if server_parts.any_running(directory):
        raise Failure(f"cluster \"{name}\" runs: stop it with 'kedge down --name {name}'")
    there = state.read(directory)
    has_objects = (directory / DATABASE).exists() and not (there and there.elsewhere)
    if has_objects and not may_replace:
        raise Failure(
            f"{directory / DATABASE} exists: choose another --name, replace its objects with"
            f" --replace, or delete the cluster with 'kedge down --name {name} --purge'"
        )


def _set_aside(directory: Path) -> None:
    """Rename the files from the time before the cluster had its objects elsewhere. The lock file is
    deleted: it has a revision that the new file need not have reached."""
    from kedge.cli.cluster.integrity import DATABASE

    (directory / f"{DATABASE}.lock").unlink(missing_ok=True)
    suffixes = ("", "-wal", "-shm")
    for suffix in suffixes if (directory / DATABASE).exists() else ():
        # SQLite would read the log of an earlier file into this one.
        (directory / f"{DATABASE}.old{suffix}").unlink(missing_ok=True)
    for suffix in suffixes:
        old = directory / f"{DATABASE}{suffix}"
        if old.exists():
            old.replace(directory / f"{DATABASE}.old{suffix}")


def _make_database(directory: Path, objects: "Sequence[tuple[str, bytes]]") -> None:
    """Make the file of a cluster. It has all objects, or does not exist."""
    import asyncio
    import tempfile

    from kedge.cli.cluster.integrity import DATABASE
    from kedge.cli.failure import Failure
    from kedge.storage.sqlite.backup import CopyFailure, copy_database
    from kedge.storage.store import StoreError

    try:
        with tempfile.TemporaryDirectory(dir=directory, prefix=".import-") as work:
            made, copy = Path(work) / "made.db", Path(work) / DATABASE
            asyncio.run(_write(made, objects))
            copy_database(made, copy)
            copy.chmod(0o600)
            copy.rename(directory / DATABASE)
    except (CopyFailure, StoreError) as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(f"cannot write to {directory}: {error.strerror}") from error


async def _write(path: Path, objects: "Sequence[tuple[str, bytes]]") -> None:
    from kedge.cli.backup import transfer
    from kedge.machinery.clock import SystemClock
    from kedge.storage.sqlite.store import SqliteStore

    store = await SqliteStore.open(path, SystemClock())
    try:
        await transfer.write_all(store, objects)
    finally:
        await store.close()
