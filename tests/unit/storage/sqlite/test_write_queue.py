"""The queue of writes: tenants take turns, and one that floods rests."""

import asyncio
from collections.abc import Iterator

import pytest

from kedge.machinery.tenant import tenant
from kedge.storage.sqlite.write_queue import WriterQueue, WriterTask
from kedge.storage.write_turns import LONGEST_REST_SECONDS, MANY, Write


class Time:
    """A monotonic clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


class Writers:
    """Puts writes of tenants into a queue."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.time = Time()
        self.queue = WriterQueue(self.time)
        self._loop = loop

    def write(self, name: str, count: int = 1) -> list[Write]:
        with tenant(name):
            made = [
                Write(f"{name}{number}", b"", 0, 0, self._loop.create_future())
                for number in range(count)
            ]
        for each in made:
            self.queue.put(each)
        return made

    def taken(self, most: int = 8) -> list[str]:
        return [write.key for write in self.queue.take(most, 0)[0]]

    def flood(self) -> None:
        """Let a group of many writes of tenant `a` take two milliseconds."""
        self.write("a", MANY)
        self.queue.rest(self.queue.take(MANY, 0)[0], 0.002)


@pytest.fixture
def writers(loop: asyncio.AbstractEventLoop) -> Writers:
    return Writers(loop)


def test_a_write_whose_request_has_ended_is_not_carried_out(writers: Writers) -> None:
    first, second = writers.write("a", 2)
    first.future.cancel()
    assert writers.taken() == [second.key]
    [only] = writers.write("b")
    only.future.cancel()
    assert writers.taken() == []


def test_tenants_take_turns_and_keep_their_order(writers: Writers) -> None:
    writers.write("a", 5)
    writers.write("b", 2)
    writers.write("", 1)
    assert writers.taken(4) == ["a0", "b0", "0", "a1"]
    writers.write("c", 1)
    assert writers.taken() == ["b1", "a2", "c0", "a3", "a4"]
    assert writers.taken() == []


def test_tasks_do_not_wait_for_turns(writers: Writers, loop: asyncio.AbstractEventLoop) -> None:
    writers.write("a", 3)
    task = WriterTask(lambda: ([], None), loop.create_future())
    writers.queue.put(task)
    writes, tasks = writers.queue.take(2, 0)
    assert [write.key for write in writes] == ["a0", "a1"]
    assert tasks == [task]
    assert writers.queue.take(2, 0)[1] == []


def test_a_tenant_rests_after_many_writes_while_others_go_on(writers: Writers) -> None:
    writers.flood()
    writers.write("a", 2)
    writers.write("b", 2)
    assert writers.taken() == ["b0", "b1"]
    writers.queue.rest([], 0.002)  # a group of few ends no rest
    writers.write("b")
    assert writers.taken() == ["b0"]
    writers.time.now += 0.002
    assert writers.taken() == ["a0", "a1"]


def test_a_tenant_with_fewer_writes_does_not_rest(writers: Writers) -> None:
    writers.write("a", MANY - 1)
    writers.queue.rest(writers.queue.take(MANY, 0)[0], 1.0)
    writers.write("a")
    assert writers.taken() == ["a0"]


def test_a_rest_is_short_after_a_slow_commit(writers: Writers) -> None:
    writers.write("a", MANY)
    writers.queue.rest(writers.queue.take(MANY, 0)[0], 10.0)
    writers.write("a")
    writers.time.now += LONGEST_REST_SECONDS
    assert writers.taken() == ["a0"]


def test_a_closed_queue_lets_nobody_rest(writers: Writers) -> None:
    writers.flood()
    writers.write("a", 3)
    writers.queue.close()
    assert writers.taken(2) == ["a0", "a1"]
    assert not writers.queue.has_ended
    assert writers.taken(2) == ["a2"]
    assert writers.queue.has_ended
