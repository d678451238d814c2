"""Memory for the answers of all webhooks together."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from kedge.apiserver.webhooks.answer_budget import AnswerBudget, NoMemoryForAnswer
from kedge.machinery.turns import next_turn


async def body(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def endless(first: bytes) -> AsyncIterator[bytes]:
    yield first
    await asyncio.get_running_loop().create_future()


async def read_and_hold(budget: AnswerBudget, pieces: AsyncIterator[bytes]) -> None:
    with budget.answer() as answer:
        await answer.read(pieces, 100)
        await asyncio.get_running_loop().create_future()


async def settled() -> None:
    for _ in range(10):
        await next_turn()


async def test_an_answer_counts_until_it_is_needed_no_more() -> None:
    budget = AnswerBudget(100)
    with budget.answer() as answer:
        assert await answer.read(body(b"abc", b"def"), 10) == b"abcdef"
        assert budget.size == 6
    assert budget.size == 0


async def test_an_answer_that_is_too_long_is_none_and_takes_nothing() -> None:
    budget = AnswerBudget(100)
    with budget.answer() as answer:
        assert await answer.read(body(b"abc", b"def"), 5) is None
    assert budget.size == 0


async def test_a_second_attempt_starts_anew() -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"abc"
        raise ConnectionError

    budget = AnswerBudget(100)
    with budget.answer() as answer:
        with pytest.raises(ConnectionError):
            await answer.read(broken(), 10)
        assert await answer.read(body(b"xy"), 10) == b"xy"
        assert budget.size == 2


async def test_the_answer_that_has_been_coming_the_longest_is_given_up() -> None:
    budget = AnswerBudget(100)
    slow = asyncio.ensure_future(read_and_hold(budget, endless(b"x" * 60)))
    await settled()
    with budget.answer() as answer:
        assert await answer.read(body(b"y" * 30, b"y" * 30), 100) == b"y" * 60
        assert budget.size == 60
        with pytest.raises(NoMemoryForAnswer):
            await slow


async def test_answers_that_are_worked_on_are_not_given_up() -> None:
    budget = AnswerBudget(100)
    working = asyncio.ensure_future(read_and_hold(budget, body(b"x" * 90)))
    await settled()
    with budget.answer() as answer, pytest.raises(NoMemoryForAnswer):
        await answer.read(body(b"y" * 20), 100)
    assert budget.size == 90
    working.cancel()
    await asyncio.wait([working])
    assert budget.size == 0
