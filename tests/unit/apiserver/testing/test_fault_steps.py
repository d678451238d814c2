"""How requests fail on purpose, as their clients see it."""

import asyncio
from typing import Any

import pytest

from kedge.api.core_v1.config_map import RESOURCE
from kedge.client.transport import Unreachable
from kedge.testing.local_server import LocalServer

MAPS = "/api/v1/namespaces/default/configmaps"
FAULTS = "/testing/faults"
AGENT = {"user-agent": "my-operator/1.0"}


async def add(server: LocalServer, **rule: Any) -> str:
    return str((await server.post(FAULTS, rule))["id"])


async def test_only_the_client_of_the_rule_suffers(server: LocalServer) -> None:
    await server.post(MAPS, {"metadata": {"name": "a"}})
    await add(server, verbs=["get"], resource="configmaps", userAgent="my-operator", code=503)
    failed = await server.call("GET", f"{MAPS}/a", headers=AGENT)
    assert (failed.status, failed.reason) == (503, "ServiceUnavailable")
    assert "fault-1" in failed.message
    assert (await server.call("GET", f"{MAPS}/a")).status == 200


async def test_a_conflict_so_many_times(server: LocalServer) -> None:
    await server.post(MAPS, {"metadata": {"name": "a"}})
    await add(server, verbs=["update"], resource="configmaps", name="a", code=409, times=2)
    body = {"metadata": {"name": "a"}, "data": {"k": "v"}}
    codes = [(await server.call("PUT", f"{MAPS}/a", body)).status for _ in range(3)]
    assert codes == [409, 409, 200]
    assert (await server.get(FAULTS))["items"][0]["hits"] == 2


async def test_nothing_is_stored_by_a_request_that_fails(server: LocalServer) -> None:
    await add(server, verbs=["create"], code=500, times=1)
    assert (await server.call("POST", MAPS, {"metadata": {"name": "a"}})).status == 500
    assert (await server.call("GET", f"{MAPS}/a")).status == 404


async def test_too_many_requests_say_when_to_try_again(server: LocalServer) -> None:
    await add(server, resource="configmaps", code=429, retryAfter=5)
    answer = await server.call("GET", MAPS)
    assert (answer.status, answer.headers["Retry-After"]) == (429, "5")


async def test_latency_holds_back_a_good_answer(server: LocalServer) -> None:
    await server.post(MAPS, {"metadata": {"name": "a"}})
    await add(server, resource="configmaps", latency=2.5)
    waiting = asyncio.ensure_future(server.client.get(RESOURCE, "a", "default"))
    await server.clock.advance(2.4)
    assert not waiting.done()
    await server.clock.advance(0.2)
    assert (await waiting).metadata.name == "a"


async def test_latency_before_an_error(server: LocalServer) -> None:
    await add(server, resource="configmaps", latency=1, code=500)
    waiting = asyncio.ensure_future(server.client.list(RESOURCE, "default"))
    await server.clock.advance(1.1)
    with pytest.raises(Exception, match="fault-1"):
        await waiting


async def test_a_dropped_connection_has_no_answer(server: LocalServer) -> None:
    await add(server, verbs=["create"], drop=True)
    with pytest.raises(Unreachable, match="fault-1"):
        await server.client.send("POST", MAPS, body=b'{"metadata":{"name":"a"}}')
    assert (await server.call("GET", f"{MAPS}/a")).status == 404


async def test_an_answer_that_is_lost_after_the_work(server: LocalServer) -> None:
    await add(server, verbs=["create"], drop=True, stage="after")
    with pytest.raises(Unreachable):
        await server.client.send("POST", MAPS, body=b'{"metadata":{"name":"a"}}')
    assert (await server.call("GET", f"{MAPS}/a")).status == 200


async def test_a_new_watch_gets_410_as_an_event(server: LocalServer) -> None:
    await add(server, verbs=["watch"], resource="configmaps", code=410, times=1)
    watch = await server.watch(f"{MAPS}?watch=1")
    (event,) = await watch.events()
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
    assert event["object"]["reason"] == "Expired"
    assert watch.ended
    assert not (await server.watch(f"{MAPS}?watch=1")).ended


async def test_open_watches_end_when_a_rule_is_added(server: LocalServer) -> None:
    first, second = [await server.watch(f"{MAPS}?watch=1") for _ in range(2)]
    secrets = await server.watch("/api/v1/secrets?watch=1")
    await add(server, verbs=["watch"], resource="configmaps", code=410, times=1)
    assert [event["type"] for event in await first.events()] == ["ERROR"]
    assert await second.events() == []
    assert (first.ended, second.ended, secrets.ended) == (True, False, False)
    await server.post(MAPS, {"metadata": {"name": "a"}})
    assert await second.seen() == [("ADDED", "a")]


async def test_an_open_watch_can_be_dropped(server: LocalServer) -> None:
    async with server.client.watch(RESOURCE, version="") as events:
        await server.settle()
        await add(server, verbs=["watch"], drop=True)
        with pytest.raises(Unreachable):
            await anext(events)


async def test_a_rule_for_everything_can_be_removed(server: LocalServer) -> None:
    await add(server, code=503)
    assert (await server.call("GET", MAPS)).status == 503
    assert (await server.call("DELETE", FAULTS)).status == 200
    assert (await server.call("GET", MAPS)).status == 200
