from collections.abc import AsyncGenerator

import pytest

from kedge.cluster.loop_thread import loop_thread


async def half(number: int) -> int:
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number // 2


def test_a_result_and_an_error_reach_the_caller() -> None:
    assert loop_thread().run(half(4)) == 2
    with pytest.raises(ValueError, match="3 is odd"):
        loop_thread().run(half(3))


def test_a_generator_is_iterated_and_closed() -> None:
    closed = []

    async def numbers() -> AsyncGenerator[int, None]:
        try:
            for number in range(3):
                yield number
        finally:
            closed.append(True)

    assert [*loop_thread().iterate(numbers())] == [0, 1, 2]
    some = loop_thread().iterate(numbers())
    assert next(some) == 0
    assert closed == [True]
    some.close()
    assert closed == [True, True]
