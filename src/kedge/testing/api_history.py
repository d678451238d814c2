"""Objects of several API servers as a store, so that the checker of histories sees what their
clients do and see."""

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final

import msgspec

from kedge.client.http import HttpTransport
from kedge.client.transport import Call, Reply, Unreachable
from kedge.storage.store import (
    RevisionConflict,
    Store,
    StoreEntry,
    StoreEvent,
    StoreUnavailable,
    WriteOutcomeUnknown,
)
from kedge.testing.store_history import PREFIX, HistoryClient, StoreOperation

NAMESPACE: Final = "history"
PATH: Final = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
KEYS: Final = f"/registry/configmaps/{NAMESPACE}/"


class ApiStore:
    """Reads and writes ConfigMaps, each through another server than the one before."""

    def __init__(self, servers: Sequence[HttpTransport], chance: random.Random) -> None:
        self._servers = servers
        self._chance = chance

    async def get(self, key: str) -> StoreEntry | None:
        try:
            reply = await self._send("GET", self._path(key))
        except Unreachable as error:
            raise StoreUnavailable(str(error)) from None
        if reply.status == 404:
            return None
        if reply.status != 200:
            raise StoreUnavailable(f"{reply.status}")
        return _entry(key, reply.body)

    async def put(self, key: str, value: bytes, *, expect: int, ttl: int = 0) -> StoreEntry:
        meta: dict[str, Any] = {"name": key.removeprefix(PREFIX), "labels": {"history": "yes"}}
        if expect:
            meta["resourceVersion"] = str(expect)
        body = msgspec.json.encode({"metadata": meta, "data": {"v": value.decode()}})
        method, path = ("PUT", self._path(key)) if expect else ("POST", PATH)
        try:
            reply = await self._send(method, path, body)
        except Unreachable as error:
            raise WriteOutcomeUnknown(str(error)) from None
        if reply.status in (200, 201):
            return _entry(key, reply.body)
        if reply.status in (404, 409):
            raise RevisionConflict(key, None)
        if reply.status in (429, 503):
            raise StoreUnavailable(f"{reply.status}")
        raise WriteOutcomeUnknown(f"{reply.status}")

    async def _send(self, method: str, path: str, body: bytes = b"") -> Reply:
        server = self._chance.choice(self._servers)
        return await server.send(Call(method, path, "", {"content-type": "application/json"}, body))

    def _path(self, key: str) -> str:
        return f"{PATH}/{key.removeprefix(PREFIX)}"


class ApiHistoryClient(HistoryClient):
    """Reads and writes at random. It deletes nothing: the answer to that tells no revision."""

    async def _act(self, key: str) -> None:
        await self._record("get" if self._chance.random() < 0.5 else "put", key)
        if self.operations[-1].outcome in ("conflict", "unavailable", "unknown"):
            await self._clock.sleep(0.02)


def _entry(key: str, body: bytes) -> StoreEntry:
    document = msgspec.json.decode(body)
    value = ((document.get("data") or {}).get("v") or "").encode()
    return StoreEntry(key, value, int(document["metadata"]["resourceVersion"]), 0)


def as_history(event: StoreEvent) -> StoreEvent:
    """Return an event of a ConfigMap as one of the history."""

    def plain(entry: StoreEntry | None) -> Any:
        if entry is None:
            return None
        document = msgspec.json.decode(entry.value)
        key = PREFIX + entry.key.removeprefix(KEYS)
        return StoreEntry(key, document["data"]["v"].encode(), entry.revision, entry.created)

    return StoreEvent(event.kind, plain(event.entry), plain(event.previous))


async def record_writes(store: Store, since: int, found: list[StoreEvent]) -> None:
    """Record the history of the ConfigMaps, from the store itself, until cancelled."""
    async with aclosing(store.watch("", since=since)) as events:
        async for event in events:
            # Controllers write here, too: the authority of the cluster.
            if event.entry.key.startswith(KEYS) and "kube-root-ca" not in event.entry.key:
                found.append(as_history(event))


class HoppingWatch:
    """Watches the ConfigMaps, and goes on with another server whenever a watch ends."""

    def __init__(self, servers: Sequence[HttpTransport], chance: random.Random, since: int) -> None:
        self._servers = servers
        self._chance = chance
        self.position = since
        self.seen: list[int] = []
        self.hops = 0

    async def run(self, pause: Callable[[], Any]) -> None:
        """Run until cancelled."""
        while True:
            self.hops += 1
            most = self._chance.randrange(1, 60)
            try:
                async for revision in self._events(most):
                    self.seen.append(revision)
                    self.position = revision
            except (Unreachable, msgspec.DecodeError):
                await pause()

    async def _events(self, most: int) -> AsyncIterator[int]:
        server = self._chance.choice(self._servers)
        query = f"watch=1&resourceVersion={self.position}&timeoutSeconds=3&labelSelector=history"
        left = b""
        async with server.stream(Call("GET", PATH, query)) as stream:
            if stream.status != 200:
                raise Unreachable(f"{stream.status}")
            async for piece in stream.pieces:
                *lines, left = (left + piece).split(b"\n")
                for line in filter(None, lines):
                    event = msgspec.json.decode(line)
                    if event["type"] == "ERROR":
                        raise Unreachable(str(event["object"].get("message")))
                    yield int(event["object"]["metadata"]["resourceVersion"])
                    most -= 1
                    if not most:
                        return


def lost(operations: Sequence[StoreOperation]) -> int:
    """Return how many operations have no known outcome."""
    return sum(each.outcome != "ok" for each in operations)
