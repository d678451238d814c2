import asyncio
from typing import Any

import pytest

from kedge.apiserver.several import barrier as barrier_module
from kedge.apiserver.several import membership
from kedge.apiserver.several.barrier import ReadBarrier, needs_newest
from kedge.apiserver.several.lease_proof import LeaseProof
from kedge.apiserver.several.membership import ServerMembership
from kedge.storage.store import StoreUnavailable
from kedge.testing.clock import FakeClock
from kedge.testing.local_server import TOKEN, LocalServer
from kedge.testing.two_servers import two_servers
from kedge.web.message import HttpRequest, Response

PROOF = LeaseProof(b"the key of both servers")
CORE = "/api/v1/namespaces/default/configmaps"


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        ("GET", "/api/v1/pods", "", True),
        ("GET", "/api/v1/pods", "limit=500", True),
        ("GET", "/api/v1/pods", "resourceVersion=0", False),
        ("GET", "/api/v1/pods", "watch=1&resourceVersion=7", False),
        ("GET", "/api/v1/pods", "watch=1&resourceVersion=8", True),
        ("GET", "/api/v1/pods", "watch=1", True),
        ("GET", "/api/v1/pods", "resourceVersion=nonsense", True),
        ("GET", "/api/v1/pods", f"resourceVersion={'9' * 5000}", True),
        ("POST", "/api/v1/pods", "resourceVersion=0", True),
        ("DELETE", "/apis/apps/v1/deployments", "", True),
        ("GET", "/apis", "", True),
        ("GET", "/readyz", "", False),
        ("POST", "/kedge/metrics/v1/nodes/n", "", False),
    ],
)
def test_which_requests_need_the_newest_state(
    method: str, path: str, query: str, expected: bool
) -> None:
    assert needs_newest(HttpRequest(method, path, query), 7) is expected


async def settled() -> None:
    return None


async def barrier(server: LocalServer, name: str) -> ReadBarrier:
    api = server.app.api
    membership_ = ServerMembership(api.store, api.cache, server.clock, identity=name, proof=PROOF)
    joining = asyncio.ensure_future(membership_.join())
    while not joining.done():
        await server.clock.advance(0.1)
    made = ReadBarrier(api.store, api.cache, membership_, settled, server.clock)
    server.start(made.run())
    return made


async def announce(server: LocalServer, name: str, clock: FakeClock) -> None:
    api = server.app.api
    own = ServerMembership(api.store, api.cache, clock, identity=name, proof=PROOF)
    joining = asyncio.ensure_future(own.join())
    while not joining.done():
        await clock.advance(0.1)
    await joining


async def test_a_read_on_another_server_shows_an_acknowledged_write() -> None:
    async with two_servers() as (one, other):
        await announce(one, "one", one.clock)
        handle = (await barrier(other, "other")).before(other.app.handle)
        for i in range(30):
            await one.post(CORE, {"metadata": {"name": f"c{i}"}})
            token = {"authorization": f"Bearer {TOKEN}"}
            answer: Any = handle(HttpRequest("GET", f"{CORE}/c{i}", headers=token))
            response = answer if isinstance(answer, Response) else await answer
            assert response.status == 200


async def test_requests_that_wait_together_ask_the_store_once() -> None:
    async with two_servers() as (one, other):
        await announce(one, "one", one.clock)
        asked = 0
        newest = other.store.newest

        async def counted() -> int:
            nonlocal asked
            asked += 1
            return await newest()

        guard = await barrier(other, "other")
        other.store.newest = counted  # type: ignore[method-assign]
        await asyncio.gather(*(guard.passed() for _ in range(50)))
        assert asked == 1
        await guard.passed()
        assert asked == 2


async def test_a_server_that_is_alone_asks_once_a_second() -> None:
    async with LocalServer.running(is_shared=True) as server:
        asked = 0

        async def counted() -> int:
            nonlocal asked
            asked += 1
            return server.store.revision

        guard = await barrier(server, "only")
        server.store.newest = counted  # type: ignore[method-assign]
        for _ in range(10):
            await guard.passed()
        assert asked == 1
        await server.clock.advance(membership.ALONE_SECONDS)
        await guard.passed()
        assert asked == 2
        server.clock.suspended += membership.ALONE_SECONDS
        await guard.passed()
        assert asked == 3, "another one may have joined while the machine was suspended"


async def test_a_single_server_stays_readable_while_its_store_is_away() -> None:
    async with two_servers() as (one, other):
        guard = await barrier(other, "other")
        handle = guard.before(other.app.handle)
        await one.clock.advance(membership.ALONE_SECONDS)

        async def away() -> int:
            raise StoreUnavailable("away")

        other.store.newest = away  # type: ignore[method-assign]
        token = {"authorization": f"Bearer {TOKEN}"}
        get = HttpRequest("GET", "/api/v1/namespaces", headers=token)
        answer: Any = handle(get)
        assert (await answer).status == 503
        one.store.is_away = True  # type: ignore[attr-defined]
        answer = handle(get)
        response = answer if isinstance(answer, Response) else await answer
        assert response.status == 200


async def test_a_server_that_could_not_renew_its_lease_for_long_answers_503() -> None:
    async with LocalServer.running(is_shared=True) as server:
        guard = await barrier(server, "only")
        await server.clock.advance(membership.LAPSE_SECONDS)
        answer: Any = guard.before(server.app.handle)(HttpRequest("GET", CORE))
        response = await answer
        assert response.status == 503
        assert ("Retry-After", "1") in response.headers


@pytest.mark.parametrize(("path", "status"), [(f"{CORE}?resourceVersion=1", 503), ("/livez", 200)])
async def test_such_a_server_does_not_answer_from_old_caches_either(path: str, status: int) -> None:
    async with LocalServer.running(is_shared=True) as server:
        guard = await barrier(server, "only")
        await server.clock.advance(membership.LAPSE_SECONDS)
        where, _, query = path.partition("?")
        token = {"authorization": f"Bearer {TOKEN}"}
        answer: Any = guard.before(server.app.handle)(HttpRequest("GET", where, query, token))
        response = answer if isinstance(answer, Response) else await answer
        assert response.status == status


async def test_requests_wait_once_for_a_definition_that_is_not_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(barrier_module, "SETTLE_SECONDS", 0.05)
    async with LocalServer.running(is_shared=True) as server:
        api = server.app.api
        own = ServerMembership(api.store, api.cache, server.clock, identity="only", proof=PROOF)
        await own.join()
        is_settled = asyncio.Event()

        async def wait() -> None:
            await is_settled.wait()

        guard = ReadBarrier(api.store, api.cache, own, wait, server.clock)
        server.start(guard.run())
        loop = asyncio.get_running_loop()
        took = []
        for _ in range(3):
            await server.clock.advance(membership.ALONE_SECONDS)
            began = loop.time()
            await guard.passed()
            took.append(loop.time() - began >= 0.05)
        assert took == [True, False, False]
