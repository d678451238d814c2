"""Objects of API servers as a store, so that the checker of histories sees what clients do and see,
and watches that go on with any server."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from kedge.client.transport import Call, Reply, Stream, Unreachable
from kedge.machinery.clock import Clock
from kedge.storage.store import (
    RevisionConflict,
    Store,
    StoreEntry,
    StoreEvent,
    StorePage,
    StoreUnavailable,
    WriteOutcomeUnknown,
)
from kedge.testing.store_history import PREFIX, HistoryClient, StoreOperation

NAMESPACE: Final = "history"
PATH: Final = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
KEYS: Final = f"/registry/configmaps/{NAMESPACE}/"
_SELECTED: Final = "labelSelector=history"
"""Not those of controllers: the authority of the cluster."""
_PAUSE_SECONDS: Final = 0.05
_PROGRESS_SECONDS: Final = 3.0
_PATIENCE_SECONDS: Final = 60.0
"""How long watches may take for the last events."""

Fault = Callable[[random.Random], Awaitable[str]]
"""Makes something fail for a while; returns what."""


class HistoryExpired(AssertionError):
    """A server has lost history of the last minutes, or this checker has: nothing can be said."""


class ApiTransport(Protocol):
    """The part of a transport that clients of a history use."""

    async def send(self, call: Call) -> Reply: ...

    def stream(self, call: Call) -> AbstractAsyncContextManager[Stream]: ...


class ApiStore:
    """Reads, lists, writes and deletes ConfigMaps, each through another server than the one
    before."""

    def __init__(self, servers: Sequence[ApiTransport], chance: random.Random) -> None:
        self._servers = servers
        self._chance = chance
        self._uids: dict[tuple[str, int], str] = {}
        """The object that was seen, by key and revision."""

    async def get(self, key: str) -> StoreEntry | None:
        reply = await self._read(_path(key))
        return None if reply.status == 404 else self._entry(msgspec.json.decode(reply.body))

    async def list(self, prefix: str, *, at: int = 0, after: str = "", limit: int = 0) -> StorePage:
        """Return all, at once or in pages of several servers."""
        size = self._chance.choice(("", "&limit=1", "&limit=2"))
        entries: list[StoreEntry] = []
        following = ""
        while True:
            reply = await self._read(PATH, f"{_SELECTED}{size}{following}")
            page = msgspec.json.decode(reply.body)
            entries += map(self._entry, page["items"])
            meta = page["metadata"]
            if not meta.get("continue"):
                return StorePage(entries, int(meta["resourceVersion"]), False, 0)
            following = f"&continue={meta['continue']}"

    async def put(self, key: str, value: bytes, *, expect: int, ttl: int = 0) -> StoreEntry:
        meta: dict[str, Any] = {"name": key.removeprefix(PREFIX), "labels": {"history": "yes"}}
        if expect:
            meta["resourceVersion"] = str(expect)
        document = {"metadata": meta, "data": {"v": value.decode()}}
        method, path = ("PUT", _path(key)) if expect else ("POST", PATH)
        reply = await self._write(method, path, document, key)
        return self._entry(msgspec.json.decode(reply.body))

    async def delete(self, key: str, *, expect: int) -> StoreEntry:
        """Delete that revision. The answer does not tell the revision of the deletion."""
        conditions = {"resourceVersion": str(expect)}
        if self._chance.random() < 0.5 and (uid := self._uids.get((key, expect))):
            conditions["uid"] = uid
        return await self._delete(key, conditions)

    async def delete_again(self, key: str, expect: int) -> StoreEntry:
        """Delete the object that had this revision, and has been deleted. There may be another one
        of its name."""
        return await self._delete(key, {"uid": self._uids[key, expect]})

    async def _delete(self, key: str, conditions: dict[str, str]) -> StoreEntry:
        await self._write("DELETE", _path(key), {"preconditions": conditions}, key)
        return StoreEntry(key, b"", 0, 0)

    async def _read(self, path: str, query: str = "") -> Reply:
        try:
            reply = await self._send(Call("GET", path, query))
        except Unreachable as error:
            raise StoreUnavailable(str(error)) from None
        if reply.status == 410:
            raise HistoryExpired(f"{path}?{query}: {reply.body.decode()}")
        if reply.status not in (200, 404):
            raise StoreUnavailable(f"{reply.status}")
        return reply

    async def _write(self, method: str, path: str, document: Any, key: str) -> Reply:
        headers = {"content-type": "application/json"}
        body = msgspec.json.encode(document)
        try:
            reply = await self._send(Call(method, path, "", headers, body))
        except Unreachable as error:
            raise WriteOutcomeUnknown(str(error)) from None
        if reply.status in (200, 201):
            return reply
        if reply.status in (404, 409):
            raise RevisionConflict(key, None)
        if reply.status in (429, 503):
            raise StoreUnavailable(f"{reply.status}")
        raise WriteOutcomeUnknown(f"{reply.status}")

    async def _send(self, call: Call) -> Reply:
        return await self._chance.choice(self._servers).send(call)

    def _entry(self, document: Any) -> StoreEntry:
        entry = _entry(document)
        self._uids[entry.key, entry.revision] = document["metadata"]["uid"]
        return entry


class ApiHistoryClient(HistoryClient):
    """Reads, lists, writes and deletes at random."""

    def __init__(self, store: ApiStore, clock: Clock, name: str, chance: random.Random) -> None:
        super().__init__(store, clock, name, chance)  # type: ignore[arg-type] # a part of a Store
        self._api = store
        self._deleted: StoreOperation | None = None

    async def _act(self, key: str) -> None:
        draw = self._chance.random()
        if draw < 0.3:
            await self.record("get", key)
        elif draw < 0.4:
            await self.record("list", PREFIX)
        elif draw < 0.55 and self._known[key]:
            await self.record("delete", key)
            if self.operations[-1].outcome == "ok":
                self._deleted = self.operations[-1]
        elif draw < 0.57 and self._deleted is not None:
            await self._delete_again(self._deleted)
        else:
            await self.record("put", key)
        outcome = self.operations[-1].outcome
        if outcome != "ok":
            await self._clock.sleep(0.02 if outcome == "conflict" else 0.1)

    async def _delete_again(self, before: StoreOperation) -> None:
        """Delete the same object: no server may take another one of its name for it."""
        begin, outcome = self._clock.monotonic(), "ok"
        try:
            await self._api.delete_again(before.key, before.expect)
        except KeyError:
            return
        except RevisionConflict:
            outcome = "conflict"
        except WriteOutcomeUnknown:
            outcome = "unknown"
        except StoreUnavailable:
            outcome = "unavailable"
        self.operations.append(
            before._replace(
                begin=begin,
                end=self._clock.monotonic(),
                outcome=outcome,  # type: ignore[arg-type]
            )
        )


class WatchedEvent(NamedTuple):
    """One event of a watch."""

    type: str
    key: str
    revision: int
    value: bytes
    """After the change; before it if the object was deleted."""


class WatchedPart(NamedTuple):
    """The events that a client saw between one list and the next."""

    since: int
    events: list[WatchedEvent]


class HoppingWatch:
    """Watches the ConfigMaps, and goes on with another server whenever a watch ends."""

    def __init__(
        self,
        servers: Sequence[ApiTransport],
        chance: random.Random,
        since: int,
        lister: HistoryClient | None = None,
    ) -> None:
        """One with a lister sometimes lists everything and goes on from there, as a client does
        that was started again."""
        self._servers = servers
        self._chance = chance
        self.lister = lister
        self.position = since
        self.parts = [WatchedPart(since, [])]
        self.hops = 0

    async def run(self, pause: Callable[[], Awaitable[None]]) -> None:
        """Run until cancelled; raises HistoryExpired."""
        while True:
            self.hops += 1
            most = self._chance.randrange(1, 60)
            if self.lister is not None and self._chance.random() < 0.3:
                await self._list_again(self.lister)
            try:
                await self._follow(most)
            except (Unreachable, msgspec.DecodeError):
                await pause()

    async def _list_again(self, lister: HistoryClient) -> None:
        await lister.record("list", PREFIX)
        listed = lister.operations[-1]
        if listed.outcome == "ok":
            self.position = listed.revision
            self.parts.append(WatchedPart(self.position, []))

    async def _follow(self, most: int) -> None:
        server = self._chance.choice(self._servers)
        query = f"watch=1&resourceVersion={self.position}&timeoutSeconds=3&{_SELECTED}"
        left = b""
        async with server.stream(Call("GET", PATH, query)) as stream:
            if stream.status == 410:
                raise HistoryExpired(f"a watch from {self.position} is refused")
            if stream.status != 200:
                raise Unreachable(f"{stream.status}")
            async for piece in stream.pieces:
                *lines, left = (left + piece).split(b"\n")
                for line in filter(None, lines):
                    self._see(msgspec.json.decode(line))
                    most -= 1
                    if not most:
                        return

    def _see(self, event: Any) -> None:
        if event["type"] == "ERROR":
            if event["object"].get("code") == 410:
                raise HistoryExpired(f"a watch from {self.position} is ended: {event['object']}")
            raise Unreachable(str(event["object"].get("message")))
        entry = _entry(event["object"])
        self.position = entry.revision
        self.parts[-1].events.append(
            WatchedEvent(event["type"], entry.key, entry.revision, entry.value)
        )


def hopping_violations(watch: HoppingWatch, events: Sequence[StoreEvent]) -> Iterator[str]:
    """Yield what a watch missed, repeated, reordered or made up up to the last of these events."""
    expected = [watched_event(event) for event in events]
    last = expected[-1].revision if expected else 0
    for number, part in enumerate(watch.parts):
        seen = [each for each in part.events if each.revision <= last]
        # A client leaves a watch before it has read everything.
        read = seen[-1].revision if seen else part.since
        until = last if part is watch.parts[-1] else read
        wanted = [each for each in expected if part.since < each.revision <= until]
        for one, other in zip(seen, wanted, strict=False):
            if one != other:
                yield f"part {number} has {one} instead of {other}"
                break
        else:
            if len(seen) != len(wanted):
                yield f"part {number} has {len(seen)} events instead of {len(wanted)}"


def watched_event(event: StoreEvent) -> WatchedEvent:
    """Return what a client is to see of a write."""
    entry, before = event.entry, event.previous
    if event.kind == "delete":
        assert before is not None
        return WatchedEvent("DELETED", entry.key, entry.revision, before.value)
    return WatchedEvent("MODIFIED" if before else "ADDED", entry.key, entry.revision, entry.value)


def as_history(event: StoreEvent) -> StoreEvent:
    """Return an event of a ConfigMap as one of the history."""

    def plain(entry: StoreEntry | None) -> Any:
        if entry is None:
            return None
        key = PREFIX + entry.key.removeprefix(KEYS)
        document = msgspec.json.decode(entry.value or b"{}")
        value = ((document.get("data") or {}).get("v") or "").encode()
        return StoreEntry(key, value, entry.revision, entry.created)

    return StoreEvent(event.kind, plain(event.entry), plain(event.previous))


def is_of_history(event: StoreEvent) -> bool:
    """Whether clients of a history wrote this: controllers write the authority of the cluster."""
    return event.entry.key.startswith(KEYS) and "kube-root-ca" not in event.entry.key


async def record_writes(store: Store, since: int, found: list[StoreEvent]) -> None:
    """Record the history of the ConfigMaps, from the store itself, until cancelled. A store that
    has lost a part of it ends the test: what cannot be compared is not passed over."""
    async with aclosing(store.watch("", since=since)) as events:
        async for event in events:
            if is_of_history(event):
                found.append(as_history(event))
    raise HistoryExpired("the store has ended the record of its writes")


async def replayed_writes(store: Store, since: int) -> list[StoreEvent]:
    """Return the history of the ConfigMaps in a store without writers; raises
    RevisionCompacted."""
    found: list[StoreEvent] = []
    async with aclosing(store.watch("", since=since)) as events:
        while since < store.revision:
            event = await anext(events)
            since = event.entry.revision
            if is_of_history(event):
                found.append(as_history(event))
    return found


class ApiHistory:
    """Clients and watches of API servers, and what they saw while faults happened."""

    def __init__(
        self, servers: Sequence[ApiTransport], clock: Clock, seed: int, clients: int
    ) -> None:
        self._servers = servers
        self._clock = clock
        self._seed = seed
        self._clients = [self._client(f"c{number}", seed + number) for number in range(clients)]
        self._watches: list[HoppingWatch] = []
        self._is_over = False
        self._last = 0
        self.faults: dict[str, int] = {}

    async def begin(self) -> int:
        """Create the namespace; returns its revision."""
        body = b'{"metadata":{"name":"%b"}}' % NAMESPACE.encode()
        headers = {"content-type": "application/json"}
        made = await self._servers[0].send(Call("POST", "/api/v1/namespaces", "", headers, body))
        assert made.status == 201, made.body
        since = int(msgspec.json.decode(made.body)["metadata"]["resourceVersion"])
        self._watches = [
            HoppingWatch(self._servers, random.Random(number), since, lister)
            for number, lister in enumerate((None, None, self._client("lister", self._seed)))
        ]
        return since

    async def run(self, seconds: float, faults: Sequence[Fault]) -> int:
        """Let clients work while faults happen one after the other; returns the revision of the
        last write, which all watches have seen."""
        chance = random.Random(self._seed)
        async with asyncio.TaskGroup() as group:
            following = [group.create_task(watch.run(self._pause)) for watch in self._watches]
            work = [group.create_task(client.run(seconds)) for client in self._clients]
            disturbing = group.create_task(self._disturb(chance, faults))
            await asyncio.wait(work)
            self._is_over = True
            await disturbing
            self._last = (await self._clients[0].finish()).revision
            give_up = self._clock.monotonic() + _PATIENCE_SECONDS
            while any(watch.position < self._last for watch in self._watches):
                if self._clock.monotonic() > give_up:
                    break  # `watch_violations` returns what they missed
                await self._pause()
            for each in following:
                each.cancel()
        return self._last

    @property
    def operations(self) -> list[StoreOperation]:
        listers = [watch.lister for watch in self._watches if watch.lister is not None]
        return [each for client in (*self._clients, *listers) for each in client.operations]

    def watch_violations(self, events: Sequence[StoreEvent]) -> list[str]:
        """Return what watches missed, repeated, reordered or made up."""
        # A write without an answer may happen after the last one, when watches have ended.
        until = [event for event in events if event.entry.revision <= self._last]
        return [each for watch in self._watches for each in hopping_violations(watch, until)]

    def summary(self, events: Sequence[StoreEvent]) -> str:
        """Say how much happened."""
        outcomes: dict[str, int] = {}
        for each in self.operations:
            what = f"{each.kind} {each.outcome}"
            outcomes[what] = outcomes.get(what, 0) + 1
        return (
            f"faults {sum(self.faults.values())} {self.faults}, operations"
            f" {dict(sorted(outcomes.items()))}, writes {len(events)}, of which"
            f" {sum(event.kind == 'delete' for event in events)} deletions, watches moved on"
            f" {[watch.hops for watch in self._watches]} times"
        )

    def _client(self, name: str, seed: int) -> ApiHistoryClient:
        store = ApiStore(self._servers, random.Random(seed))
        return ApiHistoryClient(store, self._clock, name, random.Random(1000 + seed))

    async def _disturb(self, chance: random.Random, faults: Sequence[Fault]) -> None:
        while not self._is_over:
            await self._clock.sleep(chance.uniform(0.05, 0.4))
            await self._progress(chance.randrange(40))
            what = await chance.choice(faults)(chance)
            self.faults[what] = self.faults.get(what, 0) + 1

    async def _progress(self, count: int) -> None:
        """Return when so many more operations have succeeded: there is nothing to see of a server
        that is killed before it answers. One that does not answer at all may be killed, too."""
        give_up = self._clock.monotonic() + _PROGRESS_SECONDS
        before = self._successes()
        while self._successes() < before + count and self._clock.monotonic() < give_up:
            await self._pause()

    def _successes(self) -> int:
        return sum(client.successes for client in self._clients)

    async def _pause(self) -> None:
        await self._clock.sleep(_PAUSE_SECONDS)


def _path(key: str) -> str:
    return f"{PATH}/{key.removeprefix(PREFIX)}"


def _entry(document: Any) -> StoreEntry:
    meta = document["metadata"]
    value = ((document.get("data") or {}).get("v") or "").encode()
    return StoreEntry(f"{PREFIX}{meta['name']}", value, int(meta["resourceVersion"]), 0)
