"""SeveralServers: what one server does because there may be others on its store."""

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Final

from kedge.apiserver.agents import client_context
from kedge.apiserver.api import Api
from kedge.apiserver.context import Answer
from kedge.apiserver.several.barrier import ReadBarrier
from kedge.apiserver.several.decisions import DecisionRelay
from kedge.apiserver.several.endpoints import ServerEndpoints
from kedge.apiserver.several.lease_proof import LeaseProof
from kedge.apiserver.several.membership import ServerMembership
from kedge.apiserver.several.relay import FrameRelay
from kedge.apiserver.several.terms import begin_term
from kedge.machinery.write_guard import WriteGuard
from kedge.web.message import HttpRequest

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

Handler = Callable[[HttpRequest], Answer]


class SeveralServers:
    """The membership of a server, and what depends on it."""

    def __init__(
        self, api: Api, settled: Callable[[], Awaitable[None]], identity: str, pki: Path
    ) -> None:
        self._api = api
        self.membership = ServerMembership(
            api.store,
            api.cache,
            api.clock,
            identity=identity,
            proof=LeaseProof.of_keys(pki),
            boot=_boot(),
        )
        self.barrier = ReadBarrier(api.store, api.cache, self.membership, settled, api.clock)
        self.relay = FrameRelay(self.membership, partial(client_context, pki), api.clock)
        self.decisions = DecisionRelay(self.membership, partial(client_context, pki))

    def before(self, handler: Handler) -> Handler:
        """Return the handler of requests of clients."""
        return self.barrier.before(self.relay.behind(handler))

    async def join(self) -> None:
        """Announce this server; returns when it may answer."""
        await self.membership.join()

    async def announce(self, url: str, address: str) -> None:
        """Say at which address other servers reach this one, and at which pods do."""
        await self.membership.announce(url, address)

    def endpoints(self, host: str, port: int) -> ServerEndpoints:
        """Return the publisher of the endpoints of all servers."""
        return ServerEndpoints(self._api, self.membership, host, port)

    async def leave(self) -> None:
        """Say that this server has ended."""
        await self.membership.leave()

    async def begin_term(self, office: str, lease_revision: int) -> WriteGuard:
        """Return what guards the writes of a leader; raises StatusError."""
        identity = self.membership.identity
        return await begin_term(self._api.store, office, identity, lease_revision)

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        return [self.membership.run(), self.barrier.run(), self.relay.run()]


def _boot() -> str:
    """Return what Linux calls this start of the machine; empty if it does not say."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
