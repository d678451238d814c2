"""A leader that was stopped between its check of the Lease and its write."""

import asyncio
from functools import partial
from typing import Any

import pytest

from kedge.apiserver.several.terms import LEADERS, begin_term
from kedge.client.client import Client
from kedge.client.election import CONTESTED, Election, while_leading
from kedge.client.transport import Call, LocalTransport
from kedge.machinery.errors import StatusError
from kedge.testing.local_server import TOKEN, LocalServer
from kedge.testing.two_servers import two_servers
from kedge.web.message import HttpRequest

OFFICE = "kube-scheduler"
MAPS = "/api/v1/namespaces/default/configmaps"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{OFFICE}"


def handler(server: LocalServer, before: Any = None) -> Any:
    """Return what carries the calls of a leader to its server; they wait for `before`, as if the
    process were stopped after its check."""

    async def handle(call: Call) -> Any:
        if before is not None:
            await before.wait()
        headers = {**call.headers, "authorization": f"Bearer {TOKEN}"}
        http = HttpRequest(call.method, call.path, call.query, headers, call.body)
        answer = server.app.handle(http)
        return await answer if asyncio.iscoroutine(answer) else answer

    return handle


def candidate(server: LocalServer, identity: str) -> Election:
    return Election(
        Client(LocalTransport(handler(server))),
        server.clock,
        OFFICE,
        identity,
        lambda: CONTESTED,
        lambda office, revision: begin_term(server.store, office, identity, revision),
    )


async def test_a_leader_that_was_stopped_after_its_check_writes_nothing() -> None:
    async with two_servers() as (one, other):
        first, second = candidate(one, "one"), candidate(other, "other")
        leading = asyncio.Event()

        async def work() -> None:
            leading.set()
            await one.clock.sleep(1e9)

        task = one.start(first.lead(work))
        await one.clock.advance(1)
        assert leading.is_set()
        goes_on = asyncio.Event()
        write = while_leading(first, handler(one, goes_on))
        body = b'{"metadata":{"name":"late"}}'
        late = asyncio.ensure_future(write(Call("POST", MAPS, body=body)))  # type: ignore[arg-type]
        await one.clock.advance(0.1)
        task.cancel()

        leading.clear()
        other.start(second.lead(work))
        await one.clock.advance(2 * CONTESTED.lasts)
        assert leading.is_set()
        goes_on.set()
        answer: Any = await late
        assert answer.status == 503
        assert b"leads no longer" in answer.body
        assert (await other.call("GET", f"{MAPS}/late")).status == 404
        assert first.term is not None
        assert first.term.is_lost
        now = while_leading(second, handler(other))
        made: Any = await now(Call("POST", MAPS, body=body))  # type: ignore[misc]
        assert made.status == 201


async def test_a_term_does_not_begin_if_another_one_has_the_lease_by_now(
    server: LocalServer,
) -> None:
    begin = partial(begin_term, server.store, OFFICE)
    meta = {"name": OFFICE}
    made = await server.post(LEASE.removesuffix(f"/{OFFICE}"), {"metadata": meta, "spec": {}})
    revision = int(made["metadata"]["resourceVersion"])
    assert (await begin("one", revision)).key == f"{LEADERS}{OFFICE}"
    made["spec"]["holderIdentity"] = "other"
    await server.call("PUT", LEASE, made)
    with pytest.raises(StatusError, match="has not begun"):
        await begin("one", revision)
    found = await server.store.get(f"{LEADERS}{OFFICE}")
    assert found is not None
    assert found.value == b"one"
