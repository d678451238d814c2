"""The etcd store when etcd fails, is full, is protected, or is shared with others."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from kedge.apiserver import pki
from kedge.machinery.clock import SystemClock
from kedge.machinery.protobuf_wire import bytes_field
from kedge.machinery.write_guard import WriteGuard, guarded
from kedge.storage.compaction import MARK, keep_history
from kedge.storage.etcd import client as etcd_client
from kedge.storage.etcd import leases, messages
from kedge.storage.etcd.client import EtcdClient
from kedge.storage.etcd.connection import EtcdConnection
from kedge.storage.etcd.failures import EtcdFailure, FailureKind
from kedge.storage.etcd.store import EtcdStore
from kedge.storage.store import (
    DISK_FULL,
    FIRST_REVISION,
    DiskFull,
    GuardLost,
    RevisionCompacted,
    RevisionConflict,
    StoreEntry,
    StoreError,
    StoreEvent,
    StoreReplaced,
    StoreUnavailable,
    ValueTooLarge,
    WriteOutcomeUnknown,
)
from kedge.testing.clock import FakeClock
from kedge.testing.etcd_process import EtcdProcess

pytestmark = pytest.mark.timeout(60)


def at(etcd: EtcdProcess) -> EtcdConnection:
    return EtcdConnection(endpoints=(etcd.endpoint,))


@asynccontextmanager
async def opened(connection: EtcdConnection) -> AsyncIterator[EtcdStore]:
    store = await EtcdStore.open(connection, SystemClock())
    try:
        yield store
    finally:
        await store.close()


async def first(store: EtcdStore, count: int, since: int) -> list[StoreEvent]:
    async with aclosing(store.watch("", since=since)) as watch:
        return [await anext(watch) for _ in range(count)]


async def fill(store: EtcdStore) -> None:
    # etcd compares its size with the quota ten times a second.
    for i in range(1000):
        await store.put(f"/{i}", b"x" * 100_000, expect=0)


async def test_a_watch_goes_on_without_a_gap_after_kill_9_of_etcd(etcd: EtcdProcess) -> None:
    async with opened(at(etcd)) as store:
        entry = await store.put("/a", b"0", expect=0)
        watching = asyncio.ensure_future(first(store, 6, since=entry.revision))
        for value in (b"1", b"2", b"3"):
            entry = await store.put("/a", value, expect=entry.revision)
        etcd.kill()
        pending = asyncio.ensure_future(store.put("/a", b"4", expect=entry.revision))
        await asyncio.wait([pending], timeout=0.3)
        assert not pending.done()
        assert store.failure == f"etcd at {etcd.endpoint} does not answer"
        etcd.start()
        entry = await pending
        for value in (b"5", b"6"):
            entry = await store.put("/a", value, expect=entry.revision)
        values = [event.entry.value for event in await watching]
        assert values == [b"1", b"2", b"3", b"4", b"5", b"6"]
        assert store.failure == ""


async def test_requests_fail_with_words_while_etcd_is_down(
    etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_client, "PATIENCE_SECONDS", 0.2)
    async with opened(at(etcd)) as store:
        entry = await store.put("/a", b"", expect=0)
        etcd.kill()
        with pytest.raises(StoreUnavailable, match=r"does not answer.*etcdctl endpoint status"):
            await store.get("/a")
        with pytest.raises((StoreUnavailable, WriteOutcomeUnknown)):
            await store.put("/a", b"", expect=entry.revision)
        monkeypatch.setattr(etcd_client, "PATIENCE_SECONDS", 8.0)
        etcd.start()
        assert await store.get("/a") == entry
    monkeypatch.setattr(etcd_client, "PATIENCE_SECONDS", 0.2)
    etcd.kill()
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await EtcdStore.open(at(etcd), SystemClock())


async def test_a_write_without_an_answer_happens_once_and_is_found(
    etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_client, "CALL_SECONDS", 0.3)
    async with opened(at(etcd)) as store:
        entry = await store.put("/a", b"before", expect=0)
        doomed = await store.put("/b", b"before", expect=0)
        etcd.pause()
        writing = asyncio.ensure_future(store.put("/a", b"after", expect=entry.revision))
        creating = asyncio.ensure_future(store.put("/c", b"new", expect=0))
        deleting = asyncio.ensure_future(store.delete("/b", expect=doomed.revision))
        await asyncio.wait([writing], timeout=1)
        etcd.go_on()
        written, created, deleted = await asyncio.gather(writing, creating, deleting)
        assert (written.value, created.value, deleted.value) == (b"after", b"new", b"before")
        revisions = {written.revision, created.revision, deleted.revision}
        # The creation may have been fenced off and repeated.
        fenced = {store._fence.revision} - {0}
        assert revisions | fenced == set(range(4, 7 + len(fenced)))
        assert store.revision == 6 + len(fenced)


class LateMember:
    """Holds back the first creation of a key, as a member that is stuck, and answers nothing."""

    def __init__(self, store: EtcdStore, key: bytes) -> None:
        self._write = store._client.write
        self._key = key
        self.held: list[bytes] = []
        store._client.write = self.write  # type: ignore[method-assign]

    async def write(self, method: str, request: bytes) -> bytes:
        if self._key in request and not self.held:
            self.held.append(request)
            raise EtcdFailure(FailureKind.UNKNOWN, "here", "no answer")
        return await self._write(method, request)

    async def go_on(self) -> None:
        """Carry out what was held back."""
        await self._write(messages.TXN, self.held[0])


async def test_a_creation_that_arrives_late_does_not_bring_back_what_was_deleted(
    etcd: EtcdProcess,
) -> None:
    async with opened(at(etcd)) as store:
        member = LateMember(store, b"/late")
        entry = await store.put("/late", b"v", expect=0)
        await store.delete("/late", expect=entry.revision)
        await member.go_on()
        assert await store.get("/late") is None
        # Those that were under way at the same time, and later ones, succeed.
        others = await asyncio.gather(*(store.put(f"/{i}", b"", expect=0) for i in range(3)))
        assert len({each.revision for each in others}) == 3
        with pytest.raises(RevisionConflict):
            await store.put("/0", b"", expect=0)


async def test_a_creation_that_another_one_has_overtaken_does_not_happen_later(
    etcd: EtcdProcess,
) -> None:
    async with opened(at(etcd)) as store, opened(at(etcd)) as other:
        member = LateMember(store, b"/late")
        store_write = store._client.write

        async def write(method: str, request: bytes) -> bytes:
            if b"/late" in request and not member.held:
                overtaking.append(await other.put("/late", b"other", expect=0))
            return await store_write(method, request)

        overtaking: list[StoreEntry] = []
        store._client.write = write  # type: ignore[method-assign]
        with pytest.raises(RevisionConflict):
            await store.put("/late", b"v", expect=0)
        await other.delete("/late", expect=overtaking[0].revision)
        await member.go_on()
        assert await other.get("/late") is None


async def test_a_guarded_creation_is_refused_by_its_guard_only(etcd: EtcdProcess) -> None:
    async with opened(at(etcd)) as store:
        term = await store.put("/term", b"", expect=0)
        guard = WriteGuard("/term", term.revision)
        await store.put("/a", b"", expect=0)
        assert store._fence.revision == 0
        LateMember(store, b"/b")
        await guarded(guard, store.put("/b", b"", expect=0))
        assert store._fence.revision
        # An administrator deletes the key by which creations are fenced off.
        await store.delete(store._fence.key, expect=store._fence.revision)
        await guarded(guard, store.put("/c", b"", expect=0))
        await store.put("/d", b"", expect=0)
        assert not guard.is_lost
        await store.put("/term", b"", expect=term.revision)
        with pytest.raises(GuardLost):
            await guarded(guard, store.put("/e", b"", expect=0))
        assert guard.is_lost


async def test_a_conflict_after_a_lost_answer_is_that_of_another_writer(
    etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_client, "CALL_SECONDS", 0.3)
    async with opened(at(etcd)) as store:
        entry = await store.put("/a", b"before", expect=0)
        etcd.pause()
        writes = [
            asyncio.ensure_future(store.put("/a", b"%d" % i, expect=entry.revision))
            for i in range(5)
        ]
        await asyncio.wait(writes, timeout=1)
        etcd.go_on()
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        [winner] = [each for each in outcomes if isinstance(each, StoreEntry)]
        losers = [each for each in outcomes if isinstance(each, RevisionConflict)]
        assert [each.current for each in losers] == [winner] * 4
        assert await store.get("/a") == winner


async def test_the_lease_of_a_key_outlives_the_server_that_wrote_it(
    etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LATER_SECONDS", 0)
    async with opened(at(etcd)) as store:
        await store.put("/event", b"", expect=0, ttl=1)
        kept = await store.put("/kept", b"", expect=0, ttl=1)
        await store.put("/kept", b"for ever", expect=kept.revision)
    async with opened(at(etcd)) as store:
        [event] = await first(store, 1, since=4)
        assert (event.kind, event.entry.key) == ("delete", "/event")
        assert [entry.key for entry in (await store.list("")).entries] == ["/kept"]


@pytest.mark.usefixtures("etcd")
async def test_a_full_etcd_takes_deletions_only() -> None:
    etcd = EtcdProcess.throwaway("--quota-backend-bytes=2000000")
    try:
        async with opened(at(etcd)) as store:
            doomed = await store.put("/doomed", b"", expect=0)
            with pytest.raises(DiskFull, match="etcdctl alarm disarm"):
                await fill(store)
            assert store.failure == DISK_FULL
            await store.delete("/doomed", expect=doomed.revision)
    finally:
        etcd.remove()


@pytest.mark.parametrize("size", [1_800_000, 3_000_000])
async def test_a_value_that_etcd_does_not_take_is_refused_with_words(
    etcd: EtcdProcess, size: int
) -> None:
    async with opened(at(etcd)) as store:
        with pytest.raises(ValueTooLarge, match=f"{size} bytes.*--max-request-bytes"):
            await store.put("/a", b"x" * size, expect=0)


async def test_all_writes_of_one_revision_are_delivered_together(etcd: EtcdProcess) -> None:
    foreign = EtcdClient(at(etcd), SystemClock())
    puts = [bytes_field(1, b"/%d" % i) + bytes_field(2, b"") for i in range(3)]
    async with opened(at(etcd)) as store:
        watching = asyncio.ensure_future(first(store, 4, since=1))
        await foreign.write(
            "/etcdserverpb.KV/Txn", b"".join(bytes_field(2, bytes_field(2, put)) for put in puts)
        )
        own = await store.put("/own", b"", expect=0)
        events = await watching
        assert [event.entry.revision for event in events] == [2, 2, 2, 3]
        assert [event.entry.key for event in await first(store, 4, since=1)] == [
            *("/0", "/1", "/2"),
            own.key,
        ]
    await foreign.close()


async def test_two_servers_see_the_writes_of_each_other(etcd: EtcdProcess) -> None:
    async with opened(at(etcd)) as one, opened(at(etcd)) as two:
        entry = await one.put("/a", b"one", expect=0)
        assert await two.get("/a") == entry
        updated = await two.put("/a", b"two", expect=entry.revision)
        assert await first(one, 1, since=entry.revision) == [StoreEvent("put", updated, entry)]
        with pytest.raises(RevisionConflict):
            await one.put("/a", b"three", expect=entry.revision)
        await two.compact(updated.revision)
        with pytest.raises(RevisionCompacted):
            await one.list("", at=entry.revision)
        later = await two.put("/b", b"", expect=0)
        # The revision comes from another server, and may not have arrived here yet.
        watching = asyncio.ensure_future(first(one, 1, since=later.revision))
        last = await two.put("/c", b"", expect=0)
        assert await watching == [StoreEvent("put", last, None)]


async def test_servers_agree_on_what_is_compacted(etcd: EtcdProcess) -> None:
    """By the key that kube-apiservers use, so that one of them may share the etcd."""
    clock, real = FakeClock(), SystemClock()
    async with opened(at(etcd)) as one, opened(at(etcd)) as two:
        entry = await one.put("/a", b"0", expect=0)
        keeping = [asyncio.ensure_future(keep_history(each, clock, 300)) for each in (one, two)]
        for step in range(1, 16):
            entry = await one.put("/a", b"%d" % step, expect=entry.revision)
            await two.list("/")  # it has seen this, too
            await clock.advance(30)
            await real.sleep(0.05)  # etcd answers in its own time
        mark = await two.get(MARK)
        assert mark is not None
        compacted = int(mark.value)
        async with asyncio.timeout(10):
            while await two._oldest() < compacted:
                await real.sleep(0.05)
        for each in keeping:
            each.cancel()
        await asyncio.wait(keeping)
        assert FIRST_REVISION < compacted < entry.revision - 9
        for store in (one, two):
            with pytest.raises(RevisionCompacted):
                await first(store, 1, since=compacted - 1)
            assert (await first(store, 1, since=compacted))[0].entry.revision > compacted
        # Each revision was compacted by one of them: the other one lost the comparison.
        marks = [event for event in await until(one, compacted) if event.entry.key == MARK]
        assert len({event.entry.value for event in marks}) == len(marks)


async def until(store: EtcdStore, since: int) -> list[StoreEvent]:
    """Return all writes since then."""
    found: list[StoreEvent] = []
    async with aclosing(store.watch("", since=since)) as watch:
        while not found or found[-1].entry.revision < store.revision:
            found.append(await anext(watch))
    return found


async def test_an_etcd_that_lost_acknowledged_writes_is_not_served(etcd: EtcdProcess) -> None:
    async with opened(at(etcd)) as store:
        for i in range(5):
            await store.put(f"/{i}", b"", expect=0)
        watching = asyncio.ensure_future(first(store, 1, since=store.revision))
        await store.get("/1")
        etcd.kill()
        shutil.rmtree(etcd.directory / "data")
        etcd.start()
        with pytest.raises(StoreReplaced, match="the server starts again with what etcd has now"):
            await watching
        with pytest.raises(StoreReplaced):
            await store.get("/1")


async def test_credentials_come_from_a_file_and_tokens_are_renewed(
    etcd: EtcdProcess, tmp_path: Path
) -> None:
    setup = EtcdClient(at(etcd), SystemClock())
    root, password = bytes_field(1, b"root"), bytes_field(2, b"s3cret:word")
    await setup.call("/etcdserverpb.Auth/UserAdd", root + password)
    await setup.call("/etcdserverpb.Auth/RoleAdd", root)
    await setup.call("/etcdserverpb.Auth/UserGrantRole", root + bytes_field(2, b"root"))
    await setup.call("/etcdserverpb.Auth/AuthEnable", b"")
    await setup.close()
    file = tmp_path / "credentials"
    known = EtcdConnection(endpoints=(etcd.endpoint,), credentials=file)

    with pytest.raises(StoreError, match="--etcd-credentials-file"):
        await EtcdStore.open(at(etcd), SystemClock())
    file.write_text("root:wrong\n")
    with pytest.raises(StoreError, match="authentication failed") as refused:
        await EtcdStore.open(known, SystemClock())
    assert "wrong" not in str(refused.value)
    file.write_text("root:s3cret:word\n")
    async with opened(known) as store:
        entry = await store.put("/a", b"one", expect=0)
        # Tokens are in the memory of etcd.
        etcd.kill()
        etcd.start()
        updated = await store.put("/a", b"two", expect=entry.revision)
        assert await first(store, 1, since=entry.revision) == [StoreEvent("put", updated, entry)]


@pytest.mark.usefixtures("etcd")
async def test_both_sides_prove_themselves_by_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_client, "PATIENCE_SECONDS", 0.2)
    pki.ensure(tmp_path, ["127.0.0.1"])
    own = tmp_path / "client"
    pki.ensure_node(tmp_path, "client", ("client",), own, SystemClock().now())
    pki.ensure(tmp_path / "apart", ["127.0.0.1"])
    other = tmp_path / "other"
    pki.ensure_node(tmp_path / "apart", "client", ("client",), other, SystemClock().now())
    (tmp_path / "etcd").mkdir()
    etcd = EtcdProcess(
        tmp_path / "etcd",
        "--unsafe-no-fsync",
        "--client-cert-auth",
        f"--trusted-ca-file={tmp_path / 'ca.crt'}",
        f"--cert-file={tmp_path / 'server.crt'}",
        f"--key-file={tmp_path / 'server.key'}",
        scheme="https",
    )
    known = EtcdConnection(
        endpoints=(etcd.endpoint,),
        authority=tmp_path / "ca.crt",
        certificate=own / "node.crt",
        key=own / "node.key",
    )
    try:
        etcd.start()
        async with opened(known) as store:
            entry = await store.put("/a", b"", expect=0)
            assert await store.get("/a") == entry
        strangers = (
            EtcdConnection(endpoints=known.endpoints),
            EtcdConnection(endpoints=known.endpoints, authority=known.authority),
            replace(known, certificate=other / "node.crt", key=other / "node.key"),
            replace(known, authority=other / "ca.crt"),
        )
        for each, words in zip(
            strangers,
            (
                "does not answer",
                "does not answer by TLS.*trusts the certificate in --etcd-certfile",
                "does not answer by TLS.*trusts the certificate in --etcd-certfile",
                "does not answer by TLS.*--etcd-cafile is its certificate authority",
            ),
            strict=True,
        ):
            with pytest.raises(StoreUnavailable, match=words):
                await EtcdStore.open(each, SystemClock())
    finally:
        etcd.remove()
