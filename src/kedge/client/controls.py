"""ControlsClient: the pages under /testing of a cluster that was started for tests."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kedge.api.testing.clock_change import ClockChange, ClockState
from kedge.api.testing.fault_rule import FaultRule
from kedge.api.testing.recorded_request import RequestPage
from kedge.api.testing.snapshot_info import RestoreResult, SnapshotInfo
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

    async def requests(
        self,
        *,
        since: int | str = "",
        verbs: Sequence[str] = (),
        resource: str = "",
        namespace: str = "",
        name: str = "",
        user: str = "",
        service_account: str = "",
        user_agent: str = "",
    ) -> RequestPage:
        """Return the requests that the server has answered, from a number or a time on."""
        query = {
            "since": str(since),
            "verbs": ",".join(verbs),
            "resource": resource,
            "namespace": namespace,
            "name": name,
            "user": user,
            "serviceAccount": service_account,
            "userAgent": user_agent,
        }
        return msgspec.convert(await self._ask("GET", "requests", query=query), RequestPage)

    async def clock(self) -> ClockState:
        return msgspec.convert(await self._ask("GET", "clock"), ClockState)

    async def change_clock(self, change: ClockChange) -> ClockState:
        """Move, stop or continue the clock; returns where it stands then."""
        return msgspec.convert(await self._ask("POST", "clock", change), ClockState)

    async def snapshots(self) -> list[SnapshotInfo]:
        return msgspec.convert((await self._ask("GET", "snapshots"))["items"], list[SnapshotInfo])

    async def take_snapshot(self) -> SnapshotInfo:
        return msgspec.convert(await self._ask("POST", "snapshots"), SnapshotInfo)

    async def restore_snapshot(self, name: str) -> RestoreResult:
        """Bring the objects of a snapshot back; returns when everybody sees them."""
        return msgspec.convert(await self._ask("POST", f"snapshots/{name}/restore"), RestoreResult)

    async def delete_snapshot(self, name: str) -> SnapshotInfo:
        return msgspec.convert(await self._ask("DELETE", f"snapshots/{name}"), SnapshotInfo)

    async def _ask(
        self,
        method: str,
        page: str,
        content: object = None,
        query: Mapping[str, str] | None = None,
    ) -> Any:
        body = b"" if content is None else msgspec.json.encode(content)
        try:
            reply = await self._client.send(method, f"/testing/{page}", query, body=body)
        except StatusError as error:
            # A page, and not a Status: the server does not know the path.
            if error.code == 404 and error.reason == "Unknown":
                raise NotForTests from None
            raise
        return msgspec.json.decode(reply.body)
