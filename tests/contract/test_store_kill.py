"""An acknowledged write survives kill -9, and nothing is ever half-written."""

import asyncio
import hashlib
import os
import random
import select
import signal
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path
from time import perf_counter

import pytest

from kedge.machinery.clock import SystemClock
from kedge.storage.sqlite.store import SqliteStore
from kedge.storage.store import (
    QueuedPut,
    RevisionCompacted,
    RevisionConflict,
    StoreEntry,
    StoreEvent,
)

ROUNDS = 12
WRITERS = 24


def sealed(text: str) -> bytes:
    """A value long enough to span pages, which tells whether it is whole."""
    body = text.encode() * 150
    return hashlib.sha256(body).digest() + body


def is_whole(value: bytes) -> bool:
    return hashlib.sha256(value[32:]).digest() == value[:32]


async def scribble(store: SqliteStore, writer: int) -> None:
    """Create, update and delete for ever; say so on the pipe after each acknowledgement."""
    chance = random.Random()
    while True:
        key = f"/w{writer}/{chance.randrange(6)}"
        current = await store.get(key)
        expect = current.revision if current else 0
        try:
            if current and chance.random() < 0.2:
                entry = await store.delete(key, expect=expect)
                acknowledge("deleted", entry)
            elif chance.random() < 0.3:
                for queued in chained(store, key, expect):
                    acknowledge("put", await queued.entry)
            else:
                entry = await store.put(key, sealed(f"{key}@{expect}"), expect=expect)
                acknowledge("put", entry)
        except RevisionConflict as conflict:
            raise AssertionError("nobody else writes this key") from conflict


def chained(store: SqliteStore, key: str, expect: int) -> list[QueuedPut]:
    """Queue three writes, each on top of the one before."""
    puts = [store.submit(key, sealed(f"{key}@{expect}"), expect=expect)]
    for number in range(2):
        text = sealed(f"{key}@{expect}+{number}")
        puts.append(store.submit(key, text, expect=puts[-1].revision))
    return puts


def acknowledge(deed: str, entry: StoreEntry) -> None:
    os.write(1, f"{deed} {entry.key} {entry.revision}\n".encode())


async def forget(store: SqliteStore) -> None:
    """Compact all the time, so that kills happen in the middle of that as well."""
    while True:
        await store.compact(max(1, store.revision - 200))
        await store.get("/nothing")


async def child(path: Path) -> None:
    store = await SqliteStore.open(path, SystemClock())
    async with asyncio.TaskGroup() as group:
        group.create_task(forget(store))
        for writer in range(WRITERS):
            group.create_task(scribble(store, writer))


def killed_at_random(path: Path, chance: random.Random) -> list[tuple[str, str, int]]:
    """What a child was told is safe before it died."""
    process = subprocess.Popen([sys.executable, __file__, str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    pipe = process.stdout.fileno()
    heard = os.read(pipe, 65536)
    deadline = perf_counter() + chance.uniform(0.0, 0.3)
    while (left := deadline - perf_counter()) > 0:
        if select.select([pipe], [], [], left)[0]:
            heard += os.read(pipe, 65536)
    process.send_signal(signal.SIGKILL)
    process.wait()
    while rest := os.read(pipe, 65536):
        heard += rest
    process.stdout.close()
    assert process.returncode == -signal.SIGKILL
    lines = heard.decode().splitlines(keepends=True)
    words = [line.split() for line in lines if line.endswith("\n")]
    return [(deed, key, int(revision)) for deed, key, revision in words]


async def read_all(path: Path) -> tuple[int, list[StoreEntry], list[StoreEntry], list[StoreEvent]]:
    """The store as found: its revision, its entries, and how history says they came about."""
    store = await SqliteStore.open(path, SystemClock())
    now = await store.list("")
    oldest = 1
    try:
        await store.list("", at=1)
    except RevisionCompacted as error:
        oldest = error.oldest
    before = (await store.list("", at=oldest)).entries
    marker = await store.put("/marker", sealed("marker"), expect=0)
    events: list[StoreEvent] = []
    async with aclosing(store.watch("", since=oldest)) as watch:
        while not events or events[-1].entry.revision < marker.revision:
            events.append(await anext(watch))
    await store.delete("/marker", expect=marker.revision)
    await store.close()
    return now.revision, now.entries, before, events[:-1]


def folded(before: list[StoreEntry], events: list[StoreEvent]) -> list[StoreEntry]:
    """What the entries must be after the events, each of which must fit what it follows."""
    state = {entry.key: entry for entry in before}
    for event in events:
        assert event.previous == state.get(event.entry.key)
        if event.kind == "put":
            state[event.entry.key] = event.entry
        else:
            del state[event.entry.key]
    return [state[key] for key in sorted(state)]


@pytest.mark.timeout(90)
def test_no_acknowledged_write_is_lost_to_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    chance = random.Random()
    highest = 1
    acknowledged: dict[str, tuple[str, int]] = {}
    for _ in range(ROUNDS):
        acks = killed_at_random(path, chance)
        fresh = [revision for _, _, revision in acks]
        assert fresh
        assert len(set(fresh)) == len(fresh)
        assert min(fresh) > highest
        acknowledged |= {key: (deed, revision) for deed, key, revision in acks}

        revision, entries, before, events = asyncio.run(read_all(path))
        revisions = [event.entry.revision for event in events]
        assert revisions == list(range(revision - len(events) + 1, revision + 1))
        assert folded(before, events) == entries
        assert all(is_whole(entry.value) for entry in (*entries, *before))
        assert all(is_whole(event.entry.value) for event in events)
        check_kept(acknowledged, {entry.key: entry for entry in entries}, events)
        assert revision >= max(fresh)
        highest = revision
        acknowledged = {entry.key: ("put", entry.revision) for entry in entries}


def check_kept(
    acknowledged: dict[str, tuple[str, int]],
    entries: dict[str, StoreEntry],
    events: list[StoreEvent],
) -> None:
    """Each key stands as last acknowledged, or as a later write left it that nobody heard of."""
    newest = {event.entry.key: event.entry.revision for event in events}
    for key, (deed, revision) in acknowledged.items():
        found = entries.get(key)
        if found is None:
            assert deed == "deleted" or newest.get(key, 0) > revision
        else:
            assert found.revision >= revision


if __name__ == "__main__":
    asyncio.run(child(Path(sys.argv[1])))
