"""SeveralServers: what one server does because there may be others on its store."""

from collections.abc import Awaitable, Callable, Coroutine
from socket import gethostname
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from kedge.apiserver.api import Api
from kedge.apiserver.config import ServerConfig
from kedge.apiserver.several.barrier import ReadBarrier
from kedge.apiserver.several.membership import ServerMembership


class SeveralServers:
    """The membership of a server, and what depends on it."""

    def __init__(self, api: Api, settled: Callable[[], Awaitable[None]], identity: str) -> None:
        self.membership = ServerMembership(api.store, api.cache, api.clock, identity)
        self.barrier = ReadBarrier(api.store, api.cache, self.membership, settled, api.clock)

    async def join(self) -> None:
        """Announce this server; returns when it may answer."""
        await self.membership.join("")

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        return [self.membership.run(), self.barrier.run()]


def identity_of(config: ServerConfig) -> str:
    """Return the identity of a server among those of its store; it depends on host and directory
    only, so that a server which comes back has its own Leases."""
    return f"{gethostname()}_{uuid5(NAMESPACE_URL, config.state.resolve().as_uri())}"
