import asyncio
from collections.abc import Collection

from kedge.machinery.turns import SHARE_SECONDS
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.queue import PATIENCE, QueuedPod, SchedulingQueue
from kedge.testing.clock import BusyClock, FakeClock
from kedge.testing.scheduling import demand


class Taker:
    """Somebody who takes whatever the queue has."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.queue = SchedulingQueue(self.clock)
        self.refusing: frozenset[str] = frozenset()
        """Filters that object, on any node."""

    def _objections(self, demand: PodDemand, nodes: Collection[str]) -> frozenset[str]:
        return self.refusing

    async def take(self) -> QueuedPod:
        async with asyncio.timeout(60):
            return await self.queue.take(self._objections)

    async def idle(self, seconds: float = 0.0) -> bool:
        """Whether the queue has nothing for that long."""
        taking = asyncio.ensure_future(self.queue.take(self._objections))
        await self.clock.advance(seconds)
        if not taking.done():
            taking.cancel()
            return True
        self.queue.put((await taking).demand)
        return False


async def test_the_important_come_first_and_then_those_who_came_first() -> None:
    taker = Taker()
    for name, priority in (("a", 0), ("b", 5), ("c", 0), ("d", 5)):
        taker.queue.put(demand(name, priority=priority))
    taken = [(await taker.take()).demand.key.name for _ in range(4)]
    assert taken == ["b", "d", "a", "c"]


async def test_a_pod_that_fits_nowhere_rests_until_something_may_help() -> None:
    taker = Taker()
    taker.queue.put(demand("a"))
    entry = await taker.take()
    taker.queue.rest(entry, frozenset(("InterPodAffinity",)))
    taker.queue.stir(("PodTopologySpread",))
    assert await taker.idle()
    taker.queue.stir(("InterPodAffinity",))
    assert await taker.take() is entry
    assert entry.attempts == 2


async def test_what_happens_on_a_node_helps_if_the_filters_let_the_pod_through() -> None:
    taker = Taker()
    taker.queue.put(demand("a"))
    entry = await taker.take()
    taker.queue.rest(entry, frozenset(("NodeResourcesFit",)))
    taker.refusing = frozenset(("NodeResourcesFit",))
    taker.queue.stir_node("n")
    assert await taker.idle()
    taker.refusing = frozenset()
    assert await taker.idle()
    taker.queue.stir_node("n")
    assert await taker.take() is entry


async def test_a_pod_is_asked_again_when_its_reason_is_another_one() -> None:
    taker = Taker()
    taker.queue.put(demand("a"))
    entry = await taker.take()
    taker.queue.rest(entry, frozenset(("TaintToleration",)))
    taker.refusing = frozenset(("NodeResourcesFit",))
    taker.queue.stir_node("n")
    assert await taker.take() is entry


async def test_a_pod_that_has_failed_waits_behind_others_for_a_while() -> None:
    taker = Taker()
    taker.queue.put(demand("failed", priority=9))
    entry = await taker.take()
    taker.queue.rest(entry, frozenset(("NodeName",)))
    taker.queue.put(demand("a"))
    taker.queue.put(demand("b"))
    taker.queue.stir(("NodeName",))
    assert (await taker.take()).demand.key.name == "a"
    await taker.clock.advance(1)
    assert await taker.take() is entry


async def test_nobody_rests_for_ever() -> None:
    taker = Taker()
    taker.queue.put(demand("a"))
    taker.queue.rest(await taker.take(), frozenset(("NodeName",)))
    assert await taker.idle(PATIENCE - 1)
    assert not await taker.idle(2)


async def test_after_an_error_a_pod_waits_longer_each_time() -> None:
    taker = Taker()
    taker.queue.put(demand("a"))
    for seconds in (1, 2, 4, 8, 10, 10):
        entry = await taker.take()
        taker.queue.retry(entry)
        assert await taker.idle(seconds - 0.1)
        await taker.clock.advance(0.2)


async def test_a_pod_that_has_gone_is_not_handed_out() -> None:
    taker = Taker()
    waiting, resting, taken = demand("w"), demand("r"), demand("t")
    taker.queue.put(resting)
    taker.queue.rest(await taker.take(), frozenset())
    taker.queue.put(taken)
    entry = await taker.take()
    taker.queue.put(waiting)
    for each in (waiting, resting, taken):
        taker.queue.remove(each.uid)
    taker.queue.rest(entry, frozenset())
    taker.queue.retry(entry)
    taker.queue.stir(("NodeName",))
    assert await taker.idle(2 * PATIENCE)
    assert len(taker.queue) == 0


async def test_a_pod_that_asks_for_something_else_is_tried_at_once() -> None:
    taker = Taker()
    before = demand("a")
    taker.queue.put(before)
    taker.queue.rest(await taker.take(), frozenset(("NodeName",)))
    taker.queue.renew(before)
    assert await taker.idle()
    taker.queue.put(before)
    assert (await taker.take()).demand is before


async def test_thousands_of_resting_pods_are_asked_about_in_slices() -> None:
    clock = BusyClock()
    queue, asked = SchedulingQueue(clock), list[str]()

    def objections(demand: PodDemand, nodes: Collection[str]) -> frozenset[str]:
        clock.spend(0.001)
        asked.append(demand.uid)
        return frozenset(("fit",))

    async with asyncio.TaskGroup() as tasks:
        for i in range(500):
            queue.put(demand(f"p{i}"))
            queue.rest(await queue.take(objections), frozenset(("fit",)))
        queue.stir_node("n")
        taking = tasks.create_task(queue.take(objections))
        await clock.observe(lambda: len(asked) == 500)
        taking.cancel()
    assert len(clock.slices) >= 45
    assert max(clock.slices) <= SHARE_SECONDS + 0.001


async def test_a_pod_that_left_and_came_back_is_taken_once() -> None:
    taker = Taker()
    first, second = demand("a"), demand("b")
    taker.queue.put(first)
    taker.queue.put(second)
    taker.queue.put(first)
    assert [(await taker.take()).demand for _ in range(2)] == [second, first]
    assert await taker.idle()
