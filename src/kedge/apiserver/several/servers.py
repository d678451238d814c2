"""SeveralServers: what one server does because there may be others on its store."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from kedge.apiserver.api import Api
from kedge.apiserver.several.barrier import ReadBarrier
from kedge.apiserver.several.membership import ServerMembership


class SeveralServers:
    """The membership of a server, and what depends on it."""

    def __init__(self, api: Api, settled: Callable[[], Awaitable[None]], identity: str) -> None:
        self.membership = ServerMembership(api.store, api.cache, api.clock, identity)
        self.barrier = ReadBarrier(api.store, api.cache, self.membership, settled, api.clock)

    async def join(self) -> None:
        """Announce this server; returns when it may answer."""
        await self.membership.join()

    async def announce(self, url: str) -> None:
        """Say at which address other servers reach this one."""
        await self.membership.announce(url)

    async def leave(self) -> None:
        """Say that this server has ended."""
        await self.membership.leave()

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        return [self.membership.run(), self.barrier.run()]
