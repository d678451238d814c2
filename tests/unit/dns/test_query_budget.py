"""A client that asks too fast is not answered; others are."""

from kedge.dns.query_budget import BURST, MOST_CLIENTS, PER_SECOND, QueryBudget
from kedge.testing.clock import FakeClock


def answered(budget: QueryBudget, client: str, asked: int) -> int:
    return sum(budget.admits(client) for _ in range(asked))


async def test_a_flood_is_cut_to_the_rate_and_others_are_not_affected() -> None:
    clock = FakeClock()
    budget = QueryBudget(clock)
    assert answered(budget, "10.244.0.2", 3 * BURST) == BURST
    assert answered(budget, "10.244.0.3", 10) == 10
    await clock.advance(0.5)
    assert answered(budget, "10.244.0.2", 3 * BURST) == PER_SECOND // 2
    await clock.advance(3600)
    assert answered(budget, "10.244.0.2", 3 * BURST) == BURST


async def test_long_answers_use_up_the_budget_sooner() -> None:
    clock = FakeClock()
    budget = QueryBudget(clock)
    asked = 0
    while budget.admits("10.244.0.2"):
        budget.charge("10.244.0.2", 4_000)
        asked += 1
    assert asked <= BURST // 60
    budget.charge("10.244.0.3", 4_000)
    assert answered(budget, "10.244.0.3", 2 * BURST) == BURST
    await clock.advance(3600)
    budget.admits("10.244.0.2")
    budget.charge("10.244.0.2", 10)
    assert answered(budget, "10.244.0.2", 2 * BURST) == BURST - 1


def test_the_number_of_known_clients_is_bounded() -> None:
    budget = QueryBudget(FakeClock())
    for number in range(MOST_CLIENTS + 10):
        assert budget.admits(f"client-{number}")
    assert len(budget._buckets) <= MOST_CLIENTS
