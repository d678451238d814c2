"""Copy the objects of a cluster between stores."""

import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from kedge.apiserver.config import EtcdFiles, PostgresFiles
from kedge.cli.backup.portable import ROOT
from kedge.cli.cluster.integrity import DATABASE
from kedge.cli.failure import Failure
from kedge.machinery.clock import SystemClock
from kedge.settings.parse import POSTGRESQL, etcd_endpoints
from kedge.storage.bulk import carry_out
from kedge.storage.etcd.connection import EtcdConnection
from kedge.storage.etcd.store import EtcdStore
from kedge.storage.sqlite.backup import CopyFailure, copy_database
from kedge.storage.sqlite.store import SqliteStore
from kedge.storage.store import Store, StoreEntry, StoreError


class StoreFiles(NamedTuple):
    """The settings of stores elsewhere, besides their addresses."""

    etcd: EtcdFiles
    postgresql: PostgresFiles


async def _open(address: str, files: StoreFiles) -> Store:
    if address.startswith(POSTGRESQL):
        from kedge.apiserver.postgres_stores import connection
        from kedge.storage.postgresql.store import PostgresStore

        return await PostgresStore.open(connection(address, files.postgresql), SystemClock())
    return await EtcdStore.open(
        EtcdConnection(
            endpoints=etcd_endpoints(address),
            authority=files.etcd.authority,
            certificate=files.etcd.certificate,
            key=files.etcd.key,
            credentials=files.etcd.credentials,
        ),
        SystemClock(),
    )


@asynccontextmanager
async def opened(address: str, files: StoreFiles) -> AsyncIterator[Store]:
    """Connect to a store elsewhere; raises Failure."""
    try:
        store = await _open(address, files)
        try:
            yield store
        finally:
            await store.close()
    except StoreError as error:
        raise Failure(str(error)) from error


async def entries_of_database(directory: Path) -> list[StoreEntry]:
    """Return the objects in the file of a cluster as of one moment; it may run."""
    try:
        with tempfile.TemporaryDirectory(dir=directory, prefix=".export-") as work:
            copy = Path(work) / DATABASE
            copy_database(directory / DATABASE, copy)
            store = await SqliteStore.open(copy, SystemClock())
            try:
                return (await store.list(ROOT)).entries
            finally:
                await store.close()
    except (CopyFailure, StoreError) as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(f"{directory} cannot be read: {error.strerror}") from error


async def entries_elsewhere(address: str, files: StoreFiles) -> list[StoreEntry]:
    """Return the objects in a store elsewhere as of one moment."""
    async with opened(address, files) as store:
        return (await store.list(ROOT)).entries


async def check_empty(store: Store, where: str) -> None:
    """Raise Failure if the store has objects."""
    if found := (await store.list(ROOT, limit=1)).entries:
        raise Failure(
            f"{where} has objects already, such as {found[0].key}: nothing was changed. Choose an"
            " empty store"
        )


async def write_all(store: Store, objects: Iterable[tuple[str, bytes]]) -> None:
    """Create the objects, in this order as far as the store keeps one."""

    async def create(key: str, value: bytes) -> None:
        await store.put(key, value, expect=0)

    await carry_out((create(key, value) for key, value in objects), SystemClock())
