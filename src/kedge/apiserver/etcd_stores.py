"""From the settings of a server to a store in etcd."""

from kedge.apiserver.config import ServerConfig
from kedge.machinery.clock import Clock
from kedge.storage.etcd.connection import EtcdConnection
from kedge.storage.etcd.store import EtcdStore


async def open_etcd(config: ServerConfig, clock: Clock) -> EtcdStore:
    """Connect to the etcd of a server; raises StoreError."""
    files = config.etcd
    connection = EtcdConnection(
        endpoints=config.etcd_endpoints,
        authority=files.authority,
        certificate=files.certificate,
        key=files.key,
        credentials=files.credentials,
    )
    return await EtcdStore.open(connection, clock)
