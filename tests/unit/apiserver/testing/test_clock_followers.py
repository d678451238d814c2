"""Nodes that follow the clock of a server for tests."""

import asyncio

import pytest

from kedge.apiserver.testing import clock_followers
from kedge.apiserver.testing.clock_followers import ClockFollowers
from kedge.machinery.travel_clock import TravelClock
from kedge.testing.clock import FakeClock


async def turns() -> None:
    await FakeClock().advance(0)


async def test_a_change_waits_until_the_nodes_have_followed() -> None:
    clock = TravelClock(FakeClock())
    followers = ClockFollowers(clock)
    first = await followers.course("a", "")
    assert [stretch.ahead for stretch in first.stretches] == [0]
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        polled = group.create_task(followers.course("a", first.version))
        await turns()
        clock.advance(60)
        change = group.create_task(followers.follow())
        course = await polled
        assert course.stretches[-1].ahead == 60
        await turns()
        # The node renews its lease now.
        assert not change.done()
        again = group.create_task(followers.course("a", course.version))
        await change
        again.cancel()
    assert followers.behind(["a", "b"]) == ["b"]


async def test_a_change_waits_for_the_nodes_although_another_one_follows() -> None:
    clock = TravelClock(FakeClock())
    followers = ClockFollowers(clock)
    known = (await followers.course("a", "")).version
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        polled = group.create_task(followers.course("a", known))
        await turns()
        clock.advance(60)
        first = group.create_task(followers.follow())
        clock.advance(30)
        second = group.create_task(followers.follow())
        course = await polled
        await turns()
        assert not first.done()
        assert [stretch.ahead for stretch in course.stretches] == [0, 60, 90]
        polled = group.create_task(followers.course("a", course.version))
        await first
        again = await polled
        assert not second.done()
        last = group.create_task(followers.course("a", again.version))
        await second
        last.cancel()


async def test_a_node_that_has_ended_is_not_waited_for_and_still_follows() -> None:
    followers = ClockFollowers(TravelClock(FakeClock()))
    known = (await followers.course("a", "")).version
    poll = asyncio.ensure_future(followers.course("a", known))
    await turns()
    poll.cancel()
    await turns()
    async with asyncio.timeout(60):
        await followers.follow()
    assert followers.behind(["a"]) == []


async def test_a_node_that_is_late_no_longer_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_followers, "PATIENCE_SECONDS", 0.0)
    followers = ClockFollowers(TravelClock(FakeClock()))
    await followers.course("a", "")
    await followers.follow()
    assert followers.behind(["a"]) == ["a"]
    version = (await followers.course("a", "")).version
    assert version == followers.version
    assert followers.behind(["a"]) == []


async def test_an_answer_without_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_followers, "POLL_SECONDS", 0.0)
    followers = ClockFollowers(TravelClock(FakeClock()))
    version = followers.version
    assert (await followers.course("a", version)).version == version


async def test_another_server_has_other_versions() -> None:
    clock = TravelClock(FakeClock())
    assert ClockFollowers(clock).version != ClockFollowers(clock).version
