"""The etcd store when the task that follows etcd meets errors, and what it says about them."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest

from kedge.storage.etcd.client import EtcdClient
from kedge.storage.etcd.failures import EtcdFailure, FailureKind
from kedge.storage.etcd.messages import EtcdEvent, EtcdHeader, EtcdKeyValue, WatchAnswer
from kedge.storage.etcd.store import EtcdStore
from kedge.storage.store import DISK_FULL, DiskFull, ValueTooLarge, WriteOutcomeUnknown
from kedge.testing.clock import FakeClock

HEADER = EtcdHeader(0, 5)
CREATED = WatchAnswer(HEADER, True, False, 0, "", False, [])
COMPACTED = WatchAnswer(HEADER, False, True, 9, "", False, [])
WRITTEN = WatchAnswer(
    EtcdHeader(0, 6),
    False,
    False,
    0,
    "",
    False,
    [EtcdEvent(False, EtcdKeyValue(b"/a", 6, 6, 1, b"x"), None)],
)
Answer = WatchAnswer | Exception


class ScriptedEtcd(EtcdClient):
    """An etcd whose watches and writes answer what a test says; a watch without answers waits."""

    def __init__(self) -> None:
        self.watches: list[list[Answer]] = []
        self.reads: list[bytes | Exception] = []
        self.writes: list[bytes | Exception] = []

    @property
    def endpoints(self) -> str:
        return "127.0.0.1:2379"

    async def close(self) -> None:
        pass

    async def read(self, method: str, request: bytes) -> bytes:
        return _said(self.reads)

    async def write(self, method: str, request: bytes) -> bytes:
        return _said(self.writes)

    async def watch(self, start: int) -> AsyncGenerator[WatchAnswer, None]:
        for answer in self.watches.pop(0) if self.watches else []:
            if isinstance(answer, Exception):
                raise answer
            yield answer
        await asyncio.get_running_loop().create_future()


def _said(answers: list[bytes | Exception]) -> bytes:
    answer = answers.pop(0)
    if isinstance(answer, Exception):
        raise answer
    return answer


def refused(kind: FailureKind) -> EtcdFailure:
    return EtcdFailure(kind, "127.0.0.1:2379", "refused")


@asynccontextmanager
async def following(etcd: ScriptedEtcd, clock: FakeClock) -> AsyncIterator[EtcdStore]:
    store = EtcdStore(etcd, clock, HEADER)
    try:
        yield store
    finally:
        await store.close()


async def test_an_unexpected_error_of_the_follower_ends_watches_and_writes_with_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    etcd, clock = ScriptedEtcd(), FakeClock()
    etcd.watches = [[CREATED, ValueError("not an answer of etcd")]]
    async with following(etcd, clock) as store, aclosing(store.watch("", since=5)) as watch:
        with pytest.raises(WriteOutcomeUnknown, match=r"cannot be followed.*not an answer"):
            await anext(watch)
        with pytest.raises(WriteOutcomeUnknown, match="the server starts again"):
            await store.put("/a", b"", expect=0)
    assert "etcd is not followed any more" in caplog.text


async def test_a_write_under_way_does_not_wait_for_a_follower_that_has_ended() -> None:
    etcd, clock = ScriptedEtcd(), FakeClock()
    etcd.watches = [[CREATED, refused(FailureKind.UNKNOWN)], [ValueError("broken")]]
    async with following(etcd, clock) as store:
        await clock.advance(0)
        waiting = asyncio.ensure_future(store._catch_up(6))
        await clock.advance(1)
        with pytest.raises(WriteOutcomeUnknown):
            await waiting
        with pytest.raises(WriteOutcomeUnknown):
            await store._catch_up(6)


@pytest.mark.parametrize("kind", [FailureKind.DENIED, FailureKind.OTHER, FailureKind.UNKNOWN])
async def test_the_follower_goes_on_after_a_refused_read_behind_lost_history(
    kind: FailureKind,
) -> None:
    etcd, clock = ScriptedEtcd(), FakeClock()
    etcd.watches = [[CREATED, COMPACTED], [CREATED, WRITTEN]]
    etcd.reads = [refused(kind)]
    async with following(etcd, clock) as store:
        await clock.advance(0)
        assert store.failure
        etcd.reads = [bytes.fromhex("0a021805")]  # a header with revision 5
        await clock.advance(1)
        assert store.revision == 6
        assert store.failure == ""


async def test_etcd_stays_full_after_an_error_of_another_kind() -> None:
    etcd = ScriptedEtcd()
    etcd.writes = [refused(FailureKind.FULL), refused(FailureKind.TOO_LARGE)]
    async with following(etcd, FakeClock()) as store:
        with pytest.raises(DiskFull):
            await store.put("/a", b"", expect=0)
        with pytest.raises(ValueTooLarge):
            await store.put("/a", b"", expect=0)
        assert store.failure == DISK_FULL


async def test_a_creation_without_an_answer_has_no_known_outcome_though_etcd_is_full_since() -> (
    None
):
    etcd, clock = ScriptedEtcd(), FakeClock()
    etcd.writes = [refused(FailureKind.UNKNOWN), refused(FailureKind.FULL)]
    etcd.reads = [bytes.fromhex("0a021805")]  # a header with revision 5
    async with following(etcd, clock) as store:
        with pytest.raises(WriteOutcomeUnknown, match="did not confirm the write of /a"):
            await store.put("/a", b"", expect=0)
