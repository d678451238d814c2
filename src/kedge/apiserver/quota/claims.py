"""QuotaClaims: admits writes within the quotas of their namespace, and writes their status."""

from typing import Protocol

from kedge.api.model import Object
from kedge.apiserver.quota.ledger import QuotaLedger
from kedge.apiserver.request import Request


class QuotaClaims(Protocol):
    """The claims of a server's writes on the room of quotas. The owner must `run` it."""

    ledger: QuotaLedger

    async def admit(self, request: Request, obj: Object, *, new: bool, dry: bool) -> str:
        """Charge a write until it is released; returns why it may not happen, empty if it may. A
        charged write is in the status of its quotas before this returns."""
        ...

    def release(self, request: Request) -> None:
        """The request is over, whether or not anything was stored."""
        ...

    async def run(self) -> None:
        """Put right what writes left behind that came to nothing, until cancelled."""
        ...
