"""A group that is cancelled or fails keeps nothing of its tasks in memory."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from kedge.machinery.task_group import TaskGroup
from kedge.machinery.turns import next_turn


class Buffer:
    """Something that a frame has in a variable."""


@pytest.fixture
def no_search() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_search")
async def test_a_cancelled_group_keeps_nothing() -> None:
    kept: list[weakref.ref[Buffer]] = []

    async def work() -> None:
        buffer = Buffer()
        kept.append(weakref.ref(buffer))
        async with TaskGroup() as group:
            group.create_task(asyncio.Event().wait())
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(work())
        await next_turn()
        task.cancel()
    del task
    assert [each() for each in kept] == [None]


@pytest.mark.usefixtures("no_search")
async def test_a_group_that_fails_keeps_nothing_and_tells_why() -> None:
    kept: list[weakref.ref[Buffer]] = []

    async def fail() -> None:
        raise ValueError("no")

    async def work() -> None:
        buffer = Buffer()
        kept.append(weakref.ref(buffer))
        async with TaskGroup() as group:
            group.create_task(fail())

    with pytest.raises(ExceptionGroup) as failed:
        await work()
    assert [str(each) for each in failed.value.exceptions] == ["no"]
    del failed
    assert [each() for each in kept] == [None]
