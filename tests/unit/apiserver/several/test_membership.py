import asyncio

from kedge.apiserver.several import membership
from kedge.apiserver.several.membership import ServerMembership, lease_name
from kedge.testing.local_server import LocalServer
from kedge.testing.two_servers import two_servers

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


def member(server: LocalServer, name: str) -> ServerMembership:
    api = server.app.api
    return ServerMembership(api.store, api.cache, server.clock, name)


async def announced(own: ServerMembership, url: str) -> None:
    await own.join()
    await own.announce(url, "")


async def join(server: LocalServer, own: ServerMembership, url: str = "") -> float:
    """Announce a server; returns how long that took."""
    began = server.clock.monotonic()
    joining = asyncio.ensure_future(announced(own, url))
    while not joining.done():
        await server.clock.advance(0.1)
    await joining
    return server.clock.monotonic() - began


async def test_the_first_server_does_not_wait_and_the_second_does() -> None:
    async with two_servers() as (one, other):
        first, second = member(one, "one"), member(other, "other")
        assert await join(one, first) < membership.ALONE_SECONDS
        assert await join(other, second) > membership.ALONE_SECONDS
        await one.app.api.cache.reached(one.store.revision)
        assert not first.is_alone
        assert not second.is_alone


async def test_servers_know_where_the_others_are() -> None:
    async with two_servers() as (one, other):
        first, second = member(one, "one"), member(other, "other")
        await join(one, first, "https://one:1")
        await join(other, second, "https://other:2")
        await one.app.api.cache.reached(one.store.revision)
        assert [each.url for each in first.peers] == ["https://other:2"]
        assert [each.url for each in second.peers] == ["https://one:1"]


async def test_a_lease_looks_like_that_of_a_kube_apiserver(server: LocalServer) -> None:
    await join(server, member(server, "one"), "https://one:1")
    found = await server.get(f"{LEASES}/{lease_name('one')}")
    assert found["metadata"]["labels"] == {"apiserver.kubernetes.io/identity": "kube-apiserver"}
    assert found["spec"]["holderIdentity"] == "one"


async def test_a_server_that_leaves_is_forgotten_at_once() -> None:
    async with two_servers() as (one, other):
        first, second = member(one, "one"), member(other, "other")
        await join(one, first)
        await join(other, second)
        await second.leave()
        await one.app.api.cache.reached(one.store.revision)
        assert first.is_alone


async def test_a_server_that_leaves_does_not_renew_its_lease_again() -> None:
    async with two_servers() as (one, other):
        first, second = member(one, "one"), member(other, "other")
        await join(one, first)
        await join(other, second)
        other.start(second.run())
        await second.leave()
        await one.clock.advance(2 * membership.RENEW_SECONDS)
        await one.app.api.cache.reached(one.store.revision)
        assert first.is_alone


async def test_a_server_may_renew_its_lease_while_it_announces_itself() -> None:
    async with two_servers() as (one, _):
        own = member(one, "one")
        one.start(own.run())
        await one.clock.advance(membership.RENEW_SECONDS - 0.001)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(own.join())
            tasks.create_task(own.announce("https://one:1", ""))
            await one.clock.advance(0.001)
        assert own.is_current()


async def test_a_killed_server_is_dead_after_its_lease_and_gone_much_later() -> None:
    async with two_servers() as (one, other):
        first, second = member(one, "one"), member(other, "other")
        await join(other, second)
        await join(one, first)
        one.start(first.run())
        await one.clock.advance(membership.LIVE_SECONDS)
        assert first.peers == []
        assert not first.is_alone, "it may be alive and come back"
        for _ in range(int(membership.GONE_SECONDS / membership.RENEW_SECONDS) + 2):
            await one.clock.advance(membership.RENEW_SECONDS)
        assert first.is_alone


async def test_a_lease_without_the_label_is_of_something_else(server: LocalServer) -> None:
    own = member(server, "one")
    await join(server, own)
    await server.post(LEASES, {"metadata": {"name": "apiserver-x"}, "spec": {}})
    assert own.is_alone
