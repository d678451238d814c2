"""The checker of histories finds what servers could do wrong: each defect is planted between a real
API server and its clients."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import msgspec
import pytest

from kedge.client.transport import Call, LocalTransport, Reply, Stream
from kedge.machinery.turns import next_turn
from kedge.storage.store import RevisionCompacted
from kedge.testing.api_history import (
    ApiHistory,
    ApiHistoryClient,
    ApiStore,
    HistoryExpired,
    HoppingWatch,
    record_writes,
    replayed_writes,
)
from kedge.testing.clock import FakeClock
from kedge.testing.local_server import LocalServer
from kedge.testing.store_history import KEYS, violations
from kedge.testing.two_servers import while_time_passes

SECONDS = 0.4


class SoundTransport:
    """Carries requests to a server as they are, to one with a defect sometimes otherwise."""

    def __init__(self, carrier: LocalTransport) -> None:
        self.carrier = carrier
        self.chance = Random(1)
        self.planted = 0

    def plants(self, share: float = 0.2) -> bool:
        """Whether the defect shows now."""
        now = self.chance.random() < share
        self.planted += now
        return now

    async def send(self, call: Call) -> Reply:
        return await self.carrier.send(call)

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[Stream]:
        async with self.carrier.stream(call) as stream:
            yield Stream(stream.status, stream.headers, self._pieces(stream.pieces))

    async def _pieces(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for piece in pieces:
            for line in piece.splitlines(keepends=True):
                for each in self.lines(line):
                    yield each

    def lines(self, line: bytes) -> list[bytes]:
        """Return what becomes of one event of a watch."""
        return [line]


def is_deletion(call: Call, reply: Reply | None = None) -> bool:
    return call.method == "DELETE" and (reply is None or reply.status == 200)


class LosesDeletions(SoundTransport):
    async def send(self, call: Call) -> Reply:
        if call.method == "DELETE" and b"resourceVersion" in call.body:
            found = await self.carrier.send(Call("GET", call.path))
            wanted = msgspec.json.decode(call.body)["preconditions"]["resourceVersion"].encode()
            if found.status == 200 and b'"%b"' % wanted in found.body and self.plants():
                return Reply(200, {}, b"{}")
        return await super().send(call)


class IgnoresPreconditions(SoundTransport):
    async def send(self, call: Call) -> Reply:
        if is_deletion(call):
            reply = await super().send(call)
            if reply.status == 409 and self.plants(1):
                return await super().send(Call("DELETE", call.path))
            return reply
        return await super().send(call)


class RefusesWhatItHasDeleted(SoundTransport):
    async def send(self, call: Call) -> Reply:
        reply = await super().send(call)
        return Reply(409, {}, b"{}") if is_deletion(call, reply) and self.plants() else reply


class DeletesOnItsOwn(SoundTransport):
    async def send(self, call: Call) -> Reply:
        reply = await super().send(call)
        if call.method == "PUT" and reply.status == 200 and self.plants(0.05):
            await super().send(Call("DELETE", call.path))
        return reply


class CreatesTwice(SoundTransport):
    """A creation that is repeated after its object was deleted."""

    created: Call | None = None

    async def send(self, call: Call) -> Reply:
        reply = await super().send(call)
        if call.method == "POST" and reply.status == 201:
            self.created = call
        if is_deletion(call, reply) and self.created and self.plants():
            await super().send(self.created)
        return reply


class ReadsFromThePast(SoundTransport):
    def __init__(self, carrier: LocalTransport) -> None:
        super().__init__(carrier)
        self.kept: dict[str, Reply] = {}

    def is_read(self, call: Call) -> bool:
        return call.method == "GET" and not call.query

    async def send(self, call: Call) -> Reply:
        if not self.is_read(call):
            return await super().send(call)
        old = self.kept.get(call.path)
        if old is not None and self.plants():
            return old
        reply = self.kept[call.path] = await super().send(call)
        return reply


class ListsThePast(ReadsFromThePast):
    def is_read(self, call: Call) -> bool:
        return call.method == "GET" and bool(call.query) and "continue" not in call.query


class LeavesOutOneObject(SoundTransport):
    async def send(self, call: Call) -> Reply:
        reply = await super().send(call)
        if call.query and reply.status == 200:
            page = msgspec.json.decode(reply.body)
            if page["items"] and self.plants():
                page["items"].pop()
                return Reply(200, {}, msgspec.json.encode(page))
        return reply


class ShowsPagesOfNow(SoundTransport):
    """The second page of a list is of a later revision than the first."""

    async def send(self, call: Call) -> Reply:
        if "continue" not in call.query:
            return await super().send(call)
        self.plants(1)
        for _ in range(100):
            await next_turn()  # others write meanwhile
        reply = await super().send(Call("GET", call.path, "labelSelector=history"))
        page = msgspec.json.decode(reply.body)
        page["items"] = page["items"][1:]
        return Reply(200, {}, msgspec.json.encode(page))


class DropsEvents(SoundTransport):
    kind = b"ADDED"

    def lines(self, line: bytes) -> list[bytes]:
        return [] if b'"%b"' % self.kind in line and self.plants(0.05) else [line]


class DropsDeletions(DropsEvents):
    kind = b"DELETED"


class RepeatsEvents(SoundTransport):
    def lines(self, line: bytes) -> list[bytes]:
        return [line, line] if self.plants(0.05) else [line]


class MistakesTypes(SoundTransport):
    def lines(self, line: bytes) -> list[bytes]:
        if b'"ADDED"' in line and self.plants():
            return [line.replace(b'"ADDED"', b'"MODIFIED"')]
        return [line]


class ShowsDeletedAsTheyWereNot(SoundTransport):
    def lines(self, line: bytes) -> list[bytes]:
        if b'"DELETED"' in line and self.plants():
            return [line.replace(b'"v":"', b'"v":"x')]
        return [line]


async def found_with(transport: type[SoundTransport]) -> list[str]:
    """Return what the checker finds."""
    clock = FakeClock()
    async with LocalServer.running(clock=clock) as server:
        carriers = [transport(server.transport_with({})) for _ in range(3)]
        clients = ApiHistory(carriers, clock, 1, 4)

        async def nothing(chance: Random) -> str:
            return "nothing"

        since = await clients.begin()
        await while_time_passes(clock, clients.run(SECONDS, [nothing]))
        history = await replayed_writes(server.store, since)
        done = {each.kind for each in clients.operations if each.outcome == "ok"}
        assert done >= {"get", "list", "put"}
        assert sum(event.kind == "delete" for event in history) > 3
        if transport is not SoundTransport:
            assert sum(each.planted for each in carriers), "nothing was planted"
        return [*violations(clients.operations, history), *clients.watch_violations(history)]


async def test_a_sound_server_passes() -> None:
    assert await found_with(SoundTransport) == []


@pytest.mark.parametrize(
    ("transport", "words"),
    [
        (LosesDeletions, "the acknowledged delete of"),
        (IgnoresPreconditions, "was deleted by no client"),
        (RefusesWhatItHasDeleted, "although its writer was refused"),
        (DeletesOnItsOwn, "was deleted by no client"),
        (CreatesTwice, "was written 2 times"),
        (ReadsFromThePast, "was read after"),
        (ListsThePast, "was given out after"),
        (LeavesOutOneObject, "a list of revision"),
        (ShowsPagesOfNow, "a list of revision"),
        (DropsEvents, "part"),
        (DropsDeletions, "part"),
        (RepeatsEvents, "part"),
        (MistakesTypes, "MODIFIED"),
        (ShowsDeletedAsTheyWereNot, "DELETED"),
    ],
)
async def test_a_planted_defect_is_found(transport: type[SoundTransport], words: str) -> None:
    found = await found_with(transport)
    assert any(words in each for each in found), found


async def test_a_history_that_was_compacted_is_a_failure() -> None:
    clock = FakeClock()
    async with LocalServer.running(clock=clock) as server:
        transport = server.transport_with({})
        since = await ApiHistory([transport], clock, 1, 1).begin()
        client = ApiHistoryClient(ApiStore([transport], Random(1)), clock, "c", Random(1))
        await client.record("put", KEYS[0])
        await server.store.compact(server.store.revision)
        with pytest.raises(RevisionCompacted):
            await replayed_writes(server.store, since)
        with pytest.raises(RevisionCompacted):
            await record_writes(server.store, since, [])


class SaysGone(SoundTransport):
    """As a server whose history is compacted, before the watch or in the middle."""

    is_late = False

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[Stream]:
        async def pieces() -> AsyncIterator[bytes]:
            yield b'{"type":"ERROR","object":{"kind":"Status","code":410}}\n'

        yield Stream(200 if self.is_late else 410, {}, pieces())


class SaysGoneLate(SaysGone):
    is_late = True


@pytest.mark.parametrize("transport", [SaysGone, SaysGoneLate])
async def test_a_watch_whose_history_was_compacted_is_a_failure(
    transport: type[SoundTransport],
) -> None:
    async def pause() -> None:
        raise AssertionError("a watch tries again")

    async with LocalServer.running() as server:
        watch = HoppingWatch([transport(server.transport_with({}))], Random(1), 1)
        with pytest.raises(HistoryExpired):
            await watch.run(pause)
