import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs

import msgspec
import pytest

from kedge.api.core_v1 import config_map
from kedge.client.client import Client
from kedge.client.informer import LARGE, Cache, Informer, Key
from kedge.client.transport import Body, Call, LocalSink, LocalTransport, Unreachable
from kedge.client.view import Outline, outlines
from kedge.machinery.clock import SystemClock
from kedge.machinery.errors import expired
from kedge.machinery.turns import SHARE_SECONDS
from kedge.testing.clock import BusyClock, FakeClock

Pour = Callable[[LocalSink], Awaitable[None]]


@dataclass
class Said:
    body: Body
    status: int = 200
    content_type: str = "application/json"
    headers: list[tuple[str, str]] = field(default_factory=list)


class Script:
    """A server that lists what it is told to list and watches what it is told to watch."""

    def __init__(self, lists: list[bytes | Exception], watches: list[Pour]) -> None:
        self.asked: list[str] = []
        self._lists = iter(lists)
        self._watches = iter(watches)

    def __call__(self, call: Call) -> Said:
        query = parse_qs(call.query)
        version = query["resourceVersion"][0]
        if "watch" in query:
            self.asked.append(f"watch {version}")
            return Said(next(self._watches, quiet))
        self.asked.append("list")
        answer = next(self._lists)
        if isinstance(answer, Exception):
            raise answer
        return Said(answer)


def obj(name: str, version: int) -> dict[str, object]:
    return {"metadata": {"name": name, "namespace": "ns", "resourceVersion": str(version)}}


def listing(version: int, *names: str) -> bytes:
    meta = {"resourceVersion": str(version)}
    return msgspec.json.encode({"metadata": meta, "items": [obj(n, version) for n in names]})


def events(*told: tuple[str, dict[str, object]], stay: bool = False) -> Pour:
    async def pour(sink: LocalSink) -> None:
        for type_, body in told:
            sink.write(msgspec.json.encode({"type": type_, "object": body}) + b"\n")
        if stay:
            await quiet(sink)

    return pour


async def quiet(sink: LocalSink) -> None:
    await asyncio.Event().wait()


@asynccontextmanager
async def following(
    handler: Callable[[Call], Said], clock: FakeClock
) -> AsyncIterator[tuple[Cache[Outline], list[Key]]]:
    cache: Cache[Outline] = Cache()
    woken: list[Key] = []
    cache.listen(woken.append)
    client = Client(LocalTransport(handler))
    informer = Informer(client, outlines(config_map.RESOURCE), cache, clock)
    async with asyncio.TaskGroup() as tasks:
        run = tasks.create_task(informer.run())
        await clock.advance(0)
        yield cache, woken
        run.cancel()


def names(cache: Cache[Outline]) -> list[str]:
    return sorted(found.metadata.name for found in cache)


async def test_the_cache_follows_the_list_and_then_the_watch() -> None:
    changes = events(("ADDED", obj("c", 6)), ("DELETED", obj("a", 7)), stay=True)
    script = Script([listing(5, "a", "b")], [changes])
    async with following(script, FakeClock()) as (cache, woken):
        assert names(cache) == ["b", "c"]
        assert woken == [Key("ns", name) for name in ("a", "b", "c", "a")]
    assert script.asked == ["list", "watch 5"]


async def test_a_watch_that_ends_is_resumed_where_it_ended() -> None:
    script = Script([listing(5)], [events(("ADDED", obj("a", 8)))])
    async with following(script, FakeClock()):
        pass
    assert script.asked == ["list", "watch 5", "watch 8"]


async def test_a_bookmark_moves_the_point_of_resumption_and_nothing_else() -> None:
    script = Script([listing(5, "a")], [events(("BOOKMARK", obj("", 99)))])
    async with following(script, FakeClock()) as (cache, _):
        assert names(cache) == ["a"]
    assert script.asked == ["list", "watch 5", "watch 99"]


async def test_after_410_all_is_listed_again_and_what_vanished_meanwhile_is_gone() -> None:
    too_old = events(("ERROR", expired("too old").status()))
    script = Script([listing(5, "a", "b"), listing(50, "b", "c")], [too_old])
    async with following(script, FakeClock()) as (cache, woken):
        assert names(cache) == ["b", "c"]
        assert Key("ns", "a") in woken[2:]
    assert script.asked == ["list", "watch 5", "list", "watch 50"]


async def test_a_server_that_is_away_is_asked_less_and_less_often() -> None:
    clock = FakeClock()
    away = [Unreachable("away")] * 5
    script = Script([*away, listing(5, "a")], [])
    moments: list[float] = []

    def timed(call: Call) -> Said:
        moments.append(round(clock.monotonic(), 3))
        return script(call)

    async with following(timed, clock) as (cache, _):
        await clock.advance(1)
        assert names(cache) == ["a"]
    # The last list, and the watch that follows it at once.
    assert moments == [0, 0.02, 0.06, 0.14, 0.3, 0.62, 0.62]


async def test_a_watch_that_always_ends_at_once_is_not_reopened_in_a_frenzy() -> None:
    script = Script([listing(5)], [events()] * 1000)
    async with following(script, FakeClock()):
        pass
    assert script.asked == ["list", "watch 5"]


class Slow:
    """A receiver that takes a millisecond for each object, and fails for one of them."""

    def __init__(self, clock: BusyClock) -> None:
        self.names: list[str] = []
        self._clock = clock

    def replace(self, objects: Iterable[Outline]) -> Iterator[None]:
        for found in objects:
            self.put(found)
            yield

    def put(self, obj: Outline) -> None:
        self._clock.spend(0.001)
        if obj.metadata.name == "poison":
            raise OverflowError("too large")
        self.names.append(obj.metadata.name)

    def remove(self, obj: Outline) -> None:
        self.names.remove(obj.metadata.name)


@asynccontextmanager
async def slowly(handler: Callable[[Call], Said], clock: BusyClock) -> AsyncIterator[Slow]:
    cache = Slow(clock)
    informer = Informer(
        Client(LocalTransport(handler)), outlines(config_map.RESOURCE), cache, clock
    )
    async with asyncio.TaskGroup() as tasks:
        run = tasks.create_task(informer.run())
        yield cache
        run.cancel()


async def test_a_long_list_is_taken_in_in_slices() -> None:
    clock = BusyClock()
    script = Script([listing(5, *map(str, range(500)))], [])
    async with slowly(script, clock) as cache:
        await clock.observe(lambda: len(cache.names) == 500)
    assert len(clock.slices) >= 45
    assert max(clock.slices) <= SHARE_SECONDS + 0.002


async def test_many_events_at_once_are_taken_in_in_slices() -> None:
    clock = BusyClock()
    flood = events(*(("ADDED", obj(str(i), 6 + i)) for i in range(500)), stay=True)
    async with slowly(Script([listing(5)], [flood]), clock) as cache:
        await clock.observe(lambda: len(cache.names) == 500)
    assert len(clock.slices) >= 45
    assert max(clock.slices) <= SHARE_SECONDS + 0.002


async def test_an_object_that_makes_a_receiver_fail_is_skipped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = {"metadata": {"name": 5}}
    listed = msgspec.json.decode(listing(5, "a"))
    listed["items"].insert(0, broken)
    told = events(("ADDED", obj("poison", 6)), ("ADDED", obj("b", 7)), stay=True)
    clock = BusyClock()
    async with slowly(Script([msgspec.json.encode(listed)], [told]), clock) as cache:
        await clock.observe(lambda: len(cache.names) == 2)
        assert cache.names == ["a", "b"]
    assert caplog.text.count("object skipped resource=configmaps") == 2


async def test_a_large_object_is_decoded_beside_the_event_loop() -> None:
    threads: list[int] = []

    def decode(body: bytes) -> Outline:
        threads.append(threading.get_ident())
        return outlines(config_map.RESOURCE).decode(body)

    large = obj("large", 2) | {"data": {"x": "y" * LARGE}}
    script = Script(
        [listing(1, "a")], [events(("ADDED", large), ("ADDED", obj("b", 3)), stay=True)]
    )
    cache: Cache[Outline] = Cache()
    view = msgspec.structs.replace(outlines(config_map.RESOURCE), decode=decode)
    informer = Informer(Client(LocalTransport(script)), view, cache, SystemClock())
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(informer.run())
        async with asyncio.timeout(10):
            while len(threads) < 3:
                await SystemClock().sleep(0.001)
        task.cancel()
    here = threading.get_ident()
    assert [each == here for each in threads] == [True, False, True]


async def test_a_silent_watch_is_begun_anew_if_silence_counts() -> None:
    script = Script([listing(5, "a")], [events(("BOOKMARK", obj("", 9)), stay=True)])
    clock = FakeClock()
    cache: Cache[Outline] = Cache()
    client = Client(LocalTransport(script))
    view = outlines(config_map.RESOURCE)
    informer = Informer(client, view, cache, clock, silence=0.05)
    async with asyncio.TaskGroup() as tasks:
        run = tasks.create_task(informer.run())
        async with asyncio.timeout(5):
            while "watch 9" not in script.asked:
                await clock.advance(1)
        run.cancel()
    assert script.asked[:3] == ["list", "watch 5", "watch 9"]
    assert names(cache) == ["a"]
