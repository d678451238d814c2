"""FirstQuota: the claims on quotas are loaded when there is a quota, because most clusters have
none."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from kedge.apiserver.watchcache import ResourceCache

if TYPE_CHECKING:
    from kedge.apiserver.quota.claims import QuotaClaims


class FirstQuota:
    """The claims of a server. The owner must `run` it."""

    def __init__(self, quotas: ResourceCache, load: "Callable[[], QuotaClaims]") -> None:
        self._quotas = quotas
        self._load = load
        self._is_loaded = asyncio.Event()
        self.claims: QuotaClaims | None = None
        """None if there has been no quota yet."""

    def get(self) -> "QuotaClaims | None":
        """Return the claims; None if there has been no quota yet."""
        if self.claims is None and len(self._quotas):
            self.claims = self._load()
            self._is_loaded.set()
        return self.claims

    async def run(self) -> None:
        """Do the work of the claims once there are any, until cancelled."""
        await self._is_loaded.wait()
        assert self.claims is not None
        await self.claims.run()
