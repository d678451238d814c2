"""AsyncClock, AsyncFaults and AsyncControls: time, faults, requests and snapshots of a cluster that
was started with `testing=True`."""

import builtins
from collections.abc import Coroutine, Sequence
from datetime import datetime
from typing import Any, TypedDict, TypeVar, Unpack

from kedge.api.testing import request_checks
from kedge.api.testing.clock_change import ClockChange
from kedge.api.testing.fault_rule import FaultRule
from kedge.api.testing.recorded_request import RecordedRequest
from kedge.api.testing.snapshot_info import RestoreResult, SnapshotInfo
from kedge.client.controls import ControlsClient, NotForTests
from kedge.cluster.errors import ClusterError
from kedge.machinery.clock import SystemClock
from kedge.machinery.durations import format_micro_time, parse_time

T = TypeVar("T")


class RequestFilter(TypedDict, total=False):
    """The requests of a client, a resource or an object; every field that is set must fit."""

    verbs: Sequence[str]
    resource: str
    namespace: str
    name: str
    user: str
    service_account: str
    user_agent: str


class FaultFields(RequestFilter, total=False):
    """The requests that fail on purpose, and how."""

    times: int
    code: int
    reason: str
    message: str
    retry_after: int
    latency: float
    drop: bool
    stage: str


async def answered(work: Coroutine[Any, Any, T]) -> T:
    """Return the answer of a page for tests; ClusterError if the cluster has no such pages."""
    try:
        return await work
    except NotForTests:
        why = "start it with kedge.Cluster(testing=True), or with 'kedge up --testing'"
        raise ClusterError(f"this cluster was not started for tests: {why}") from None


class AsyncClock:
    """The time of the cluster. Processes in containers keep the machine's time."""

    def __init__(self, controls: ControlsClient) -> None:
        self._controls = controls

    async def now(self) -> datetime:
        """Return the time."""
        return parse_time((await answered(self._controls.clock())).now)

    async def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> datetime:
        """Move the clock forward; returns the new time."""
        whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        return await self._change(ClockChange(advance=whole))

    async def freeze(self) -> datetime:
        """Stop the clock; returns its time."""
        return await self._change(ClockChange(frozen=True))

    async def resume(self) -> datetime:
        """Let the clock continue; returns its time."""
        return await self._change(ClockChange(frozen=False))

    async def _change(self, change: ClockChange) -> datetime:
        return parse_time((await answered(self._controls.change_clock(change))).now)


class AsyncFaults:
    """The rules by which requests fail on purpose, and containers that end so."""

    def __init__(self, controls: ControlsClient, namespace: str) -> None:
        self._controls = controls
        self._namespace = namespace

    async def oom_kill(self, pod: str, container: str = "", *, namespace: str = "") -> None:
        """Kill a container as if it had used up its memory; the first one if none is named."""
        name = pod.rpartition("/")[2]
        await answered(self._controls.oom_kill(namespace or self._namespace, name, container))

    async def add(self, **fields: Unpack[FaultFields]) -> FaultRule:
        """Add a rule: `add(verbs=["update"], resource="pods/status", code=409, times=2)`."""
        known: dict[str, Any] = {**fields, "verbs": tuple(fields.get("verbs", ()))}
        return await answered(self._controls.add_fault(FaultRule(**known)))

    async def list(self) -> builtins.list[FaultRule]:
        """Return the rules, each with the number of requests that it has fit."""
        return await answered(self._controls.faults())

    async def remove(self, rule: FaultRule | str) -> None:
        """Remove a rule."""
        await answered(self._controls.remove_fault(rule if isinstance(rule, str) else rule.id))

    async def clear(self) -> None:
        """Remove all rules."""
        await answered(self._controls.remove_faults())


class AsyncControls:
    """Requests and snapshots of a cluster for tests."""

    def __init__(self, controls: ControlsClient) -> None:
        self._controls = controls

    async def requests(
        self, since: int | str | datetime = "", **chosen: Unpack[RequestFilter]
    ) -> list[RecordedRequest]:
        """Return the requests that the server has answered, from a number or a time on."""
        start = format_micro_time(since) if isinstance(since, datetime) else since
        return (await answered(self._controls.requests(since=start, **chosen))).items

    async def assert_quiet(self, seconds: float = 2.0, **chosen: Unpack[RequestFilter]) -> None:
        """Fail if these clients do more in so many seconds than watch and renew leases."""
        start = (await answered(self._controls.requests(**chosen))).next
        await SystemClock().sleep(seconds)
        request_checks.assert_quiet(await self.requests(start, **chosen))

    async def snapshot(self) -> SnapshotInfo:
        """Remember all objects."""
        return await answered(self._controls.take_snapshot())

    async def content(self, snapshot: SnapshotInfo | str | None) -> bytes:
        """Return the objects of a snapshot, or the objects of now."""
        if snapshot is not None:
            name = snapshot if isinstance(snapshot, str) else snapshot.id
            return await answered(self._controls.snapshot_content(name))
        taken = await self.snapshot()
        try:
            return await self._controls.snapshot_content(taken.id)
        finally:
            await self._controls.delete_snapshot(taken.id)

    async def follow(self, origin: "AsyncControls") -> None:
        """Set the clock to that of another cluster. If that one has stood still, and is behind the
        machine's, the clock stays at the machine's time: it cannot go back."""
        theirs = await answered(origin._controls.clock())
        if theirs.offset or theirs.frozen:
            change = ClockChange(advance=max(theirs.offset, 0.0), frozen=theirs.frozen)
            await answered(self._controls.change_clock(change))

    async def restore(self, snapshot: SnapshotInfo | str) -> RestoreResult:
        """Bring the objects of a snapshot back; returns when everybody sees them."""
        name = snapshot if isinstance(snapshot, str) else snapshot.id
        return await answered(self._controls.restore_snapshot(name))
