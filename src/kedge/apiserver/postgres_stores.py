"""From the settings of a server to a store in PostgreSQL."""

from kedge.apiserver.config import PostgresFiles, ServerConfig
from kedge.machinery.clock import Clock
from kedge.settings.postgresql import postgresql_address
from kedge.storage.postgresql.connection import PostgresConnection
from kedge.storage.postgresql.store import PostgresStore


async def open_postgresql(config: ServerConfig, clock: Clock) -> PostgresStore:
    """Connect to the PostgreSQL of a server; raises StoreError."""
    return await PostgresStore.open(connection(config.store, config.postgresql), clock)


def connection(address: str, files: PostgresFiles) -> PostgresConnection:
    """Return what the store needs to connect."""
    return PostgresConnection(
        address=postgresql_address(address),
        authority=files.authority,
        certificate=files.certificate,
        key=files.key,
        password_file=files.password,
    )
