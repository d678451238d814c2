"""Copy the objects of a cluster between stores."""

import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from kedge.apiserver.config import EtcdFiles
from kedge.cli.backup.portable import ROOT
from kedge.cli.cluster.integrity import DATABASE
from kedge.cli.failure import Failure
from kedge.machinery.clock import SystemClock
from kedge.settings.parse import etcd_endpoints
from kedge.storage.bulk import carry_out
from kedge.storage.etcd.connection import EtcdConnection
from kedge.storage.etcd.store import EtcdStore
from kedge.storage.sqlite.backup import CopyFailure, copy_database
from kedge.storage.sqlite.store import SqliteStore
from kedge.storage.store import Store, StoreEntry, StoreError


@asynccontextmanager
async def opened_etcd(address: str, files: EtcdFiles) -> AsyncIterator[Store]:
    """Connect to an etcd; raises Failure."""
    connection = EtcdConnection(
        endpoints=etcd_endpoints(address),
        authority=files.authority,
        certificate=files.certificate,
        key=files.key,
        credentials=files.credentials,
    )
    try:
        store = await EtcdStore.open(connection, SystemClock())
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


async def entries_of_etcd(address: str, files: EtcdFiles) -> list[StoreEntry]:
    """Return the objects in an etcd as of one moment."""
    async with opened_etcd(address, files) as store:
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
