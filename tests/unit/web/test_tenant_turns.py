"""Tenants share the event loop."""

import asyncio
from typing import Any

import pytest

from kedge.machinery.turns import next_turn
from kedge.testing.clock import BusyClock
from kedge.web.tenant_turns import (
    BUSY_SECONDS,
    FREE_SECONDS,
    HALF_LIFE_SECONDS,
    HELD_SECONDS,
    LONGEST_HOLD_SECONDS,
    LONGEST_PAUSE_SECONDS,
    MOST_REMEMBERED,
    TURN_SECONDS,
    MeteredWork,
    TenantHolds,
    TenantTurns,
)


class Desk:
    """Tenants whose work takes time of a clock."""

    def __init__(self) -> None:
        self.clock = BusyClock()
        self.done: list[str] = []
        self.turns: TenantTurns[str] = TenantTurns(self.clock.monotonic, self._work)
        self.busy = self.turns.load("busy")
        self.quiet = self.turns.load("quiet")

    def _work(self, name: str) -> None:
        self.spend("busy", TURN_SECONDS)
        self.done.append(name)

    def spend(self, tenant: str, seconds: float) -> None:
        begun = self.clock.monotonic()
        self.clock.spend(seconds)
        self.turns.load(tenant).spend(begun, self.clock.monotonic())


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_a_tenant_is_busy_until_its_use_is_forgotten(desk: Desk) -> None:
    assert not desk.busy.is_busy(desk.clock.monotonic())
    desk.spend("busy", BUSY_SECONDS * 1.9)
    assert desk.busy.is_busy(desk.clock.monotonic())
    assert not desk.quiet.is_busy(desk.clock.monotonic())
    desk.clock.spend(HALF_LIFE_SECONDS)
    assert not desk.busy.is_busy(desk.clock.monotonic())


async def test_a_turn_begins_as_much_as_fits_it(desk: Desk) -> None:
    desk.spend("busy", BUSY_SECONDS * 2)
    await next_turn()
    for name in "abc":
        desk.turns.wait(desk.busy, name)
    seen = []
    while len(desk.done) < 3:
        await next_turn()
        seen.append(len(desk.done))
    assert max(after - before for before, after in zip([0, *seen], seen, strict=False)) == 1


async def test_full_turns_do_not_keep_work_waiting_for_ever(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk.turns, "_end_turn", lambda: None)  # every turn is full
    desk.clock.spend(1)
    desk.spend("busy", BUSY_SECONDS * 2)
    for name in "ab":
        desk.turns.wait(desk.busy, name)
    for _ in range(5):
        await next_turn()
    assert desk.done == ["a"]
    desk.clock.spend(LONGEST_PAUSE_SECONDS)
    while len(desk.done) < 2:
        await next_turn()


async def test_tenants_that_wait_take_turns(desk: Desk) -> None:
    other = desk.turns.load("other")
    for name in "ab":
        desk.turns.wait(desk.busy, name)
    desk.turns.wait(other, "c")
    while len(desk.done) < 3:
        await next_turn()
    assert desk.done == ["a", "c", "b"]


async def test_a_request_of_another_tenant_holds_back_the_busy_one(desk: Desk) -> None:
    desk.turns.begin("request", desk.quiet)
    desk.turns.wait(desk.busy, "a")
    for _ in range(10):
        await next_turn()
    assert desk.done == []
    desk.turns.end("request")
    while not desk.done:
        await next_turn()


async def test_a_hold_ends_by_itself(desk: Desk) -> None:
    desk.turns.begin("slow", desk.quiet)
    desk.clock.spend(HELD_SECONDS)
    desk.turns.wait(desk.busy, "a")
    while not desk.done:
        await next_turn()


def test_many_requests_cannot_hold_back_for_ever() -> None:
    holds = TenantHolds()
    held = []
    for number in range(20):
        now = 1 + number * HELD_SECONDS / 2
        holds.begin(number, now)
        held.append(holds.seconds(now) > 0)
    longest = round(2 * LONGEST_HOLD_SECONDS / HELD_SECONDS)
    assert held[:longest] == [True] * longest
    assert not held[longest]
    assert FREE_SECONDS <= HELD_SECONDS / 2
    assert any(held[longest + 1 :])


async def test_a_hold_wakes_the_busy_tenant_when_the_last_request_ends(desk: Desk) -> None:
    for name in ("first", "second"):
        desk.turns.begin(name, desk.quiet)
    desk.turns.wait(desk.busy, "a")
    await next_turn()
    desk.turns.end("first")
    for _ in range(5):
        await next_turn()
    assert desk.done == []
    desk.turns.end("second")
    for _ in range(2):
        await next_turn()
    assert desk.done == ["a"]


async def test_a_turn_wakes_only_the_steps_that_fit_it(desk: Desk) -> None:
    """A hundred requests that look each turn whether it is theirs would be a long turn."""
    woken = 0

    class Counted(MeteredWork):
        def send(self, value: Any) -> Any:
            nonlocal woken
            woken += 1
            return super().send(value)

    async def request() -> None:
        for _ in range(2):
            desk.clock.spend(TURN_SECONDS / 2)
            await next_turn()

    desk.spend("busy", BUSY_SECONDS * 2)
    await next_turn()
    tasks = [asyncio.ensure_future(Counted(request(), desk.busy, desk.turns)) for _ in range(50)]
    await asyncio.gather(*tasks)
    # Each of three steps is at most tried once, and done.
    assert woken <= 50 * 3 * 2


async def test_new_requests_and_steps_of_others_take_turns(desk: Desk) -> None:
    async def stream() -> None:
        while True:
            desk.clock.spend(TURN_SECONDS)
            await next_turn()

    desk.spend("busy", BUSY_SECONDS * 2)
    await next_turn()
    streams = [
        asyncio.ensure_future(MeteredWork(stream(), desk.busy, desk.turns)) for _ in range(3)
    ]
    desk.turns.wait(desk.busy, "a")
    for _ in range(10):
        await next_turn()
    assert desk.done == ["a"]
    for each in streams:
        each.cancel()
    await asyncio.wait(streams)


async def test_work_of_a_busy_tenant_waits_for_the_next_turn(desk: Desk) -> None:
    steps: list[str] = []

    async def request(name: str) -> None:
        for _ in range(3):
            desk.clock.spend(TURN_SECONDS)
            steps.append(name)
            await next_turn()

    desk.spend("busy", BUSY_SECONDS * 2)
    await next_turn()
    tasks = [
        asyncio.ensure_future(MeteredWork(request(name), desk.busy, desk.turns)) for name in "ab"
    ]
    seen = []
    while len(steps) < 6:
        await next_turn()
        seen.append(len(steps))
    await asyncio.gather(*tasks)
    assert max(after - before for before, after in zip([0, *seen], seen, strict=False)) == 1
    assert desk.busy.used(desk.clock.monotonic()) > BUSY_SECONDS * 2


async def test_a_task_can_be_cancelled_while_it_is_held_back(desk: Desk) -> None:
    ended: list[str] = []

    async def request(name: str) -> None:
        try:
            await next_turn()
        finally:
            ended.append(name)

    desk.spend("busy", BUSY_SECONDS * 2)
    desk.turns.begin("request", desk.quiet)
    tasks = [
        asyncio.ensure_future(MeteredWork(request(name), desk.busy, desk.turns)) for name in "ab"
    ]
    await next_turn()
    tasks[0].cancel()
    await next_turn()
    await next_turn()
    assert tasks[0].cancelled()
    assert not tasks[1].done()
    desk.turns.end("request")
    await tasks[1]
    assert ended == ["b"], "the first had not begun"


async def test_idle_tenants_are_forgotten(desk: Desk) -> None:
    desk.spend("busy", BUSY_SECONDS * 2)
    for number in range(2 * MOST_REMEMBERED):
        desk.turns.load(str(number))
    assert desk.turns.load("busy") is desk.busy
    assert desk.turns.load("quiet") is not desk.quiet
