import pytest

from kedge.machinery.turns import next_turn
from kedge.storage.bulk import WRITERS, carry_out
from kedge.testing.clock import FakeClock


async def test_writes_begin_in_their_order_and_few_are_under_way_at_once() -> None:
    begun: list[int] = []
    under_way = most = 0

    async def write(number: int) -> None:
        nonlocal under_way, most
        begun.append(number)
        under_way += 1
        most = max(most, under_way)
        await next_turn()
        under_way -= 1

    count = 3 * WRITERS
    await carry_out((write(number) for number in range(count)), FakeClock())
    assert begun == list(range(count))
    assert most == WRITERS


async def test_an_error_ends_the_rest() -> None:
    begun: list[int] = []

    async def write(number: int) -> None:
        begun.append(number)
        await next_turn()
        if number == 3:
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        await carry_out((write(number) for number in range(10 * WRITERS)), FakeClock())
    assert len(begun) < 4 * WRITERS
