"""ControlsClient: the pages under /testing of a cluster that was started for tests."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.api.core_v1.pod.spec import all_containers
from kedge.api.testing.clock_change import ClockChange, ClockState
from kedge.api.testing.fault_rule import FaultRule
from kedge.api.testing.recorded_request import RequestPage
from kedge.api.testing.snapshot_info import RestoreResult, SnapshotInfo
from kedge.client.client import Client
from kedge.machinery.errors import StatusError, bad_request


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

    async def oom_kill(self, namespace: str, pod: str, container: str = "") -> str:
        """Kill a container as if it had used up its memory; return its name. Without a name it is
        the first one of the pod. 404 if the pod does not exist, 409 if it does not run."""
        found = await self._client.get(PODS, pod, namespace)
        name, node = container or found.spec.containers[0].name, found.spec.nodeName
        if all(each.name != name for _, each in all_containers(found.spec)):
            raise bad_request(f'pod "{pod}" has no container "{name}"')
        if not node:
            raise StatusError(409, "Conflict", f'pod "{pod}" is not on a node')
        path = f"/api/v1/nodes/{quote(node)}/proxy/testing/oomKill/{found.metadata.uid}/{name}"
        try:
            await self._client.send("POST", path)
        except StatusError as error:
            if error.code == 404 and error.reason == "Unknown":
                raise NotForTests from None
            raise
        return name

    async def snapshots(self) -> list[SnapshotInfo]:
        return msgspec.convert((await self._ask("GET", "snapshots"))["items"], list[SnapshotInfo])

    async def take_snapshot(self) -> SnapshotInfo:
        return msgspec.convert(await self._ask("POST", "snapshots"), SnapshotInfo)

    async def restore_snapshot(self, name: str) -> RestoreResult:
        """Bring the objects of a snapshot back; returns when everybody sees them."""
        return msgspec.convert(await self._ask("POST", f"snapshots/{name}/restore"), RestoreResult)

    async def snapshot_content(self, name: str) -> bytes:
        """Return the objects of a snapshot, for a cluster that begins with them."""
        return await self._send("GET", f"snapshots/{name}")

    async def delete_snapshot(self, name: str) -> SnapshotInfo:
        return msgspec.convert(await self._ask("DELETE", f"snapshots/{name}"), SnapshotInfo)

    async def _ask(
        self,
        method: str,
        page: str,
        content: object = None,
        query: Mapping[str, str] | None = None,
    ) -> Any:
        return msgspec.json.decode(await self._send(method, page, content, query))

    async def _send(
        self,
        method: str,
        page: str,
        content: object = None,
        query: Mapping[str, str] | None = None,
    ) -> bytes:
        body = b"" if content is None else msgspec.json.encode(content)
        try:
            reply = await self._client.send(method, f"/testing/{page}", query, body=body)
        except StatusError as error:
            # A page, and not a Status: the server does not know the path.
            if error.code == 404 and error.reason == "Unknown":
                raise NotForTests from None
            raise
        return reply.body
