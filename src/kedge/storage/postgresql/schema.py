"""Makes and checks the schema of a cluster, and notices another database."""

import logging
from typing import Any, NamedTuple

from kedge.machinery.clock import Clock
from kedge.storage.postgresql.failures import PostgresFailure, store_error
from kedge.storage.postgresql.patience import Patience
from kedge.storage.postgresql.session import CALL_SECONDS, PostgresServers
from kedge.storage.postgresql.statements import BUMP, LAYOUT, Statements
from kedge.storage.store import StoreError

LEAST_VERSION = 130000
"""PostgreSQL 13; kedge is tested with 15."""

log = logging.getLogger(__name__)


class Found(NamedTuple):
    """The description of a schema by itself and by its server."""

    here: str
    """Which database this is: its system, its timeline, and its table."""
    layout: int
    revision: int
    source: str
    """Which database it was when a server was last started."""


async def describe(connected: Any, queries: Statements) -> Found:
    """Return what a schema says; errors are those of the library."""
    row = await connected.fetchrow(queries.describe, timeout=CALL_SECONDS)
    return Found(*row)


async def prepare(servers: PostgresServers, queries: Statements, clock: Clock) -> Found:
    """Make the tables if there are none, and check that they are those of this cluster."""
    patience = Patience(clock)
    while True:
        try:
            return await _prepare_once(servers, queries)
        except PostgresFailure as failure:
            if not failure.is_passing or patience.is_over():
                raise store_error(failure.without_effect()) from None
        await patience.pause()


async def _prepare_once(servers: PostgresServers, queries: Statements) -> Found:
    connected, server = await servers.connect()
    try:
        found = await _prepare(servers, connected, queries)
        version = connected.get_server_version()
        fsync = await connected.fetchval("SHOW fsync", timeout=CALL_SECONDS)
    except StoreError:
        raise
    except Exception as error:
        raise servers.failure(error, server) from None
    finally:
        connected.terminate()
    if fsync != "on":
        log.warning("acknowledged writes may be lost server=%s: fsync is off", server)
    log.info(
        "postgresql connected server=%s version=%d.%d schema=%s revision=%d",
        server,
        version.major,
        version.minor,
        servers.connection.address.schema,
        found.revision,
    )
    return found


async def _prepare(servers: PostgresServers, connected: Any, queries: Statements) -> Found:
    version = int(await connected.fetchval("SHOW server_version_num", timeout=CALL_SECONDS))
    if version < LEAST_VERSION:
        raise StoreError(
            f"postgresql at {servers.names} is version {version // 10000}, and kedge needs 13 or"
            " newer: choose another server in --store"
        )
    async with connected.transaction():
        # Servers that start at the same time, one after the other.
        await connected.execute(
            "SELECT pg_advisory_xact_lock(hashtext($1))", queries.channel, timeout=CALL_SECONDS
        )
        await _make(servers, connected, queries)
        found = await describe(connected, queries)
        if found.layout != LAYOUT:
            raise StoreError(
                f"{servers.connection.address.place} at {servers.names} has storage layout"
                f" {found.layout}, and this kedge reads only layout {LAYOUT}: nothing was changed."
                " Start the version of kedge that made it, or choose another schema"
            )
        if found.source != found.here:
            await _adopt(connected, queries, found)
        return await describe(connected, queries)


async def _make(servers: PostgresServers, connected: Any, queries: Statements) -> None:
    there = await connected.fetchrow(queries.exists, timeout=CALL_SECONDS)
    if there["tables"]:
        return
    address = servers.connection.address
    if there["relations"]:
        raise StoreError(
            f"{address.place} at {servers.names} has tables that are not those of kedge: nothing"
            " was changed. Choose another schema: --store postgresql://.../DATABASE/SCHEMA"
        )
    if not there["schema"]:
        await connected.execute(f'CREATE SCHEMA "{address.schema}"', timeout=CALL_SECONDS)
    await connected.execute(queries.create, timeout=CALL_SECONDS)


async def _adopt(connected: Any, queries: Statements, found: Found) -> None:
    """Go on with a database that is another one than before.

    It may have lost writes, and given their revisions to other ones. So revisions go on far above
    those that clients may know, and history begins anew: every client lists again.
    """
    if found.source:
        log.warning(
            "postgresql is another one than before, clients list again was=%s is=%s revision=%d",
            found.source,
            found.here,
            found.revision + BUMP,
        )
    await connected.execute(queries.adopt, found.here, BUMP, timeout=CALL_SECONDS)


def pooled(servers: str) -> StoreError:
    """Return the error of a server whose notifications do not arrive."""
    return StoreError(
        f"notifications of postgresql at {servers} do not arrive: a pooler between kedge and the"
        " server gives each transaction another connection. Name the server itself in --store, or"
        " set pool_mode = session for this database (PgBouncer)"
    )
