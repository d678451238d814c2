"""Tenants take turns in threads."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Iterator

import pytest

from kedge.machinery.tenant import tenant
from kedge.machinery.tenant_threads import TenantThreads
from kedge.machinery.turns import next_turn

PATIENCE_SECONDS = 60


@pytest.fixture
def threads() -> Iterator[TenantThreads]:
    with TenantThreads(2, "test", for_tenants=1) as made:
        yield made


class Gate:
    """Work that goes on when it is let."""

    def __init__(self) -> None:
        self._open = threading.Event()

    def __call__(self) -> None:
        assert self._open.wait(PATIENCE_SECONDS)

    def open(self) -> None:
        self._open.set()


def test_tenants_take_turns(threads: TenantThreads) -> None:
    gate, order = Gate(), list[str]()

    def noted(text: str) -> Callable[[], None]:
        return lambda: order.append(text)

    with tenant("flood"):
        jobs = [threads.submit(gate)]
        jobs += [threads.submit(noted(f"flood {i}")) for i in range(3)]
    with tenant("quiet"):
        jobs.append(threads.submit(noted("quiet")))
    gate.open()
    for job in jobs:
        job.result(PATIENCE_SECONDS)
    assert order == ["flood 0", "quiet", "flood 1", "flood 2"]


def test_the_server_does_not_wait_for_tenants(threads: TenantThreads) -> None:
    gate = Gate()
    with tenant("flood"):
        jobs = [threads.submit(gate) for _ in range(3)]
    assert threads.submit(int, "7").result(PATIENCE_SECONDS) == 7
    assert not jobs[1].running()
    gate.open()
    for job in jobs:
        job.result(PATIENCE_SECONDS)


def test_a_job_that_was_given_up_is_dropped(threads: TenantThreads) -> None:
    gate, ran = Gate(), list[int]()
    with tenant("one"):
        first = threads.submit(gate)
        dropped, kept = (threads.submit(ran.append, i) for i in range(2))
    with tenant("two"):
        alone = threads.submit(ran.append, 2)
    assert dropped.cancel()
    assert alone.cancel()
    gate.open()
    first.result(PATIENCE_SECONDS)
    kept.result(PATIENCE_SECONDS)
    assert ran == [1]


def test_errors_reach_the_caller_and_free_the_thread(threads: TenantThreads) -> None:
    with tenant("one"):
        failing, good = threads.submit(int, "x"), threads.submit(int, "7")
    with pytest.raises(ValueError, match="invalid literal"):
        failing.result(PATIENCE_SECONDS)
    assert good.result(PATIENCE_SECONDS) == 7


class LargeDocument:
    """A result."""


class LargeError(Exception):
    """Refers to a document, as its traceback does."""

    def __init__(self, document: LargeDocument) -> None:
        self.document = document


def fail() -> None:
    raise LargeError(LargeDocument())


@pytest.fixture
def without_search_for_cycles() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_search_for_cycles")
@pytest.mark.parametrize("name", ["", "somebody"])
async def test_what_a_thread_returns_or_raises_is_freed_at_once(
    threads: TenantThreads, name: str
) -> None:
    """Servers decode large bodies in threads, and search for cycles rarely."""
    loop = asyncio.get_running_loop()

    async def result() -> weakref.ref[LargeDocument]:
        return weakref.ref(await loop.run_in_executor(threads, LargeDocument))

    async def error() -> weakref.ref[LargeDocument]:
        try:
            await loop.run_in_executor(threads, fail)
        except LargeError as raised:
            return weakref.ref(raised.document)
        raise AssertionError

    with tenant(name):
        left = [await result(), await error()]
    async with asyncio.timeout(PATIENCE_SECONDS):
        # The thread may not have returned yet.
        while any(reference() is not None for reference in left):
            await next_turn()
