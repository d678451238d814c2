"""ControlsClient: the pages under /testing of a cluster that was started for tests."""

from typing import Any

import msgspec

from kedge.api.testing.fault_rule import FaultRule
from kedge.client.client import Client
from kedge.machinery.errors import StatusError


class NotForTests(Exception):
    """The cluster was not started for tests."""

    def __str__(self) -> str:
        return "this cluster was not started for tests: start one with 'kedge up --testing'"


class ControlsClient:
    """Asks one server; its user must be an administrator."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def faults(self) -> list[FaultRule]:
        return msgspec.convert((await self._ask("GET", "faults"))["items"], list[FaultRule])

    async def add_fault(self, rule: FaultRule) -> FaultRule:
        """Add a rule; returns it with its name."""
        return msgspec.convert(await self._ask("POST", "faults", rule), FaultRule)

    async def remove_fault(self, name: str) -> FaultRule:
        return msgspec.convert(await self._ask("DELETE", f"faults/{name}"), FaultRule)

    async def remove_faults(self) -> list[FaultRule]:
        """Remove all rules."""
        return msgspec.convert((await self._ask("DELETE", "faults"))["items"], list[FaultRule])

    async def _ask(self, method: str, page: str, content: object = None) -> Any:
        body = b"" if content is None else msgspec.json.encode(content)
        try:
            reply = await self._client.send(method, f"/testing/{page}", body=body)
        except StatusError as error:
            # A page, and not a Status: the server does not know the path.
            if error.code == 404 and error.reason == "Unknown":
                raise NotForTests from None
            raise
        return msgspec.json.decode(reply.body)
