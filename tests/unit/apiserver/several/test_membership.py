import asyncio
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from kedge.apiserver.several import membership
from kedge.apiserver.several.lease_proof import LeaseProof
from kedge.apiserver.several.membership import IdentityInUse, ServerMembership, lease_name
from kedge.machinery.travel_clock import TravelClock
from kedge.testing.clock import FakeClock
from kedge.testing.local_server import LocalServer
from kedge.testing.two_servers import two_servers

PROOF = LeaseProof(b"the key of both servers")
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


def member(server: LocalServer, name: str) -> ServerMembership:
    api = server.app.api
    return ServerMembership(api.store, api.cache, server.clock, identity=name, proof=PROOF)


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


async def lease(server: LocalServer, name: str) -> Any:
    return await server.get(f"{LEASES}/{lease_name(name)}")


def forged(name: str) -> Any:
    notes = {"kedge.io/server-url": "https://evil:1", "kedge.io/advertised-address": "10.6.6.6 1"}
    meta = {"name": name, "labels": membership.LABELS, "annotations": notes}
    return {"metadata": meta, "spec": {"holderIdentity": name}}


async def test_a_forged_lease_names_no_address_and_makes_nobody_alone(server: LocalServer) -> None:
    own = member(server, "one")
    await join(server, own)
    await server.post(LEASES, forged("apiserver-evil"))
    assert [(each.url, each.address) for each in own.peers] == [("", "")]
    assert not own.is_alone, "it may be that of a kube-apiserver"


async def test_a_lease_with_the_proof_of_another_cluster_names_no_address() -> None:
    async with two_servers() as (one, other):
        first = member(one, "one")
        api = other.app.api
        foreign = ServerMembership(
            api.store, api.cache, other.clock, identity="other", proof=LeaseProof(b"other keys")
        )
        await join(one, first)
        await join(other, foreign, "https://other:2")
        await one.app.api.cache.reached(one.store.revision)
        assert [each.url for each in first.peers] == [""]


@pytest.mark.parametrize("note", ["server-url", "advertised-address", "server-proof"])
async def test_an_annotation_that_somebody_else_changed_does_not_count(note: str) -> None:
    async with two_servers() as (one, other):
        first, second = member(one, "one"), member(other, "other")
        await join(one, first)
        await join(other, second, "https://other:2")
        found = await lease(one, "other")
        found["metadata"]["annotations"][f"kedge.io/{note}"] = "https://evil:1"
        await one.call("PUT", f"{LEASES}/{lease_name('other')}", found)
        await one.app.api.cache.reached(one.store.revision)
        assert [each.url for each in first.peers] == ["https://other:2"]
        await one.clock.advance(membership.LIVE_SECONDS)
        assert first.peers == [], "writes of others are no signs of life"


async def test_a_lease_that_is_written_again_is_no_sign_of_life() -> None:
    async with two_servers() as (one, other):
        first, second = member(one, "one"), member(other, "other")
        await join(one, first)
        await join(other, second, "https://other:2")
        old = await lease(one, "other")
        del old["metadata"]["resourceVersion"]
        await second.leave()
        await one.app.api.cache.reached(one.store.revision)
        assert first.is_alone
        await one.post(LEASES, old)
        await one.app.api.cache.reached(one.store.revision)
        assert [each.url for each in first.peers] == [""]


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_a_server_whose_lease_somebody_took_away_still_counts(is_deleted: bool) -> None:
    async with two_servers() as (one, other):
        first, second = member(one, "one"), member(other, "other")
        await join(one, first)
        await join(other, second, "https://other:2")
        one.start(first.run())
        path = f"{LEASES}/{lease_name('other')}"
        if is_deleted:
            await one.delete(path)
        else:
            found = await lease(one, "other")
            del found["metadata"]["labels"]
            await one.call("PUT", path, found)
        await one.app.api.cache.reached(one.store.revision)
        assert not first.is_alone
        await one.clock.advance(membership.RENEW_SECONDS)
        assert not first.is_alone
        for _ in range(int(membership.LAPSE_SECONDS / membership.RENEW_SECONDS) + 1):
            await one.clock.advance(membership.RENEW_SECONDS)
        assert first.is_alone, "by now it answers nothing"


async def test_a_server_starts_although_another_client_writes_its_lease_all_the_time(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, put = membership.PREFIX + lease_name("one").removeprefix("apiserver-"), server.store.put
    others = 5

    async def be_late(key_written: str, value: bytes, **options: Any) -> Any:
        nonlocal others
        if key_written == key and others:
            others -= 1
            present = await server.store.get(key)
            await put(key, b'{"metadata":{}}', expect=present.revision if present else 0)
        return await put(key_written, value, **options)

    monkeypatch.setattr(server.store, "put", be_late)
    own = member(server, "one")
    await join(server, own)
    assert (others, own.is_current()) == (0, True)


async def test_an_old_farewell_takes_no_server_away() -> None:
    async with two_servers() as (one, other):
        first, second = member(one, "one"), member(other, "other")
        await join(one, first)
        await join(other, second)
        began = one.store.revision
        await second.leave()
        async with aclosing(one.store.watch("", since=began)) as events:
            farewell = msgspec.json.decode((await anext(events)).entry.value)
        assert farewell["spec"]["holderIdentity"] == ""
        second = member(other, "other")
        await one.clock.advance(1)
        await join(other, second, "https://other:2")
        path = f"{LEASES}/{lease_name('other')}"
        await one.delete(path)
        await one.post(LEASES, farewell)
        await one.delete(path)
        await one.app.api.cache.reached(one.store.revision)
        assert not first.is_alone


@pytest.mark.parametrize("leaves", [True, False])
async def test_a_server_renews_its_lease_also_if_its_clock_was_set_back(leaves: bool) -> None:
    async with two_servers() as (one, other):
        first = member(one, "one")
        await join(one, first)
        api = other.app.api
        early = FakeClock(other.clock.now() - timedelta(hours=1))
        second = member(other, "other")
        await join(other, second, "https://other:2")
        if leaves:
            await second.leave()
        again = ServerMembership(api.store, api.cache, early, identity="other", proof=PROOF)
        await again.announce("https://other:3", "")
        await one.app.api.cache.reached(one.store.revision)
        assert [each.url for each in first.peers] == ["https://other:3"]


async def test_nothing_that_others_wrote_stays_in_a_lease(server: LocalServer) -> None:
    own = member(server, "one")
    await join(server, own)
    found = await lease(server, "one")
    found["metadata"]["finalizers"] = ["evil.io/stay"]
    await server.call("PUT", f"{LEASES}/{lease_name('one')}", found)
    await own.announce("https://one:1", "")
    await server.settle()
    renewed = (await lease(server, "one"))["metadata"]
    assert "finalizers" not in renewed
    assert renewed["uid"] == found["metadata"]["uid"]


async def test_a_server_whose_clock_a_test_has_stopped_renews_its_lease(
    server: LocalServer,
) -> None:
    api, clock = server.app.api, TravelClock(server.clock)
    own = ServerMembership(api.store, api.cache, clock, identity="one", proof=PROOF)
    await join(server, own)
    server.start(own.run())
    clock.freeze()
    for _ in range(int(membership.LAPSE_SECONDS / membership.RENEW_SECONDS) + 1):
        await server.clock.advance(membership.RENEW_SECONDS)
    assert own.is_current()


async def test_a_machine_that_was_suspended_joins_anew(server: LocalServer) -> None:
    own = member(server, "one")
    await join(server, own)
    server.start(own.run())
    server.clock.suspended += membership.LAPSE_SECONDS
    assert not own.is_current()
    await server.clock.advance(membership.RENEW_SECONDS)
    assert not own.is_current(), "another one may have taken itself for alone"
    await server.clock.advance(membership.JOIN_SECONDS)
    assert own.is_current()


def twin(server: LocalServer, boot: str) -> ServerMembership:
    """Return a server on a copy of the machine of `one`."""
    api = server.app.api
    return ServerMembership(
        api.store, api.cache, server.clock, identity="one", proof=PROOF, boot=boot
    )


async def test_a_server_does_not_start_while_another_one_has_its_name(server: LocalServer) -> None:
    elder, younger = twin(server, "a"), twin(server, "b")
    await join(server, elder, "https://one:1")
    server.start(elder.run())
    with pytest.raises(IdentityInUse, match="machine-id of its own"):
        await join(server, younger)
    await younger.leave()
    await server.settle()
    notes = (await lease(server, "one"))["metadata"]["annotations"]
    assert notes["kedge.io/server-url"] == "https://one:1"
    await server.clock.advance(2 * membership.RENEW_SECONDS)
    assert elder.is_current()


async def test_a_machine_that_was_started_again_waits_for_a_moment(server: LocalServer) -> None:
    before, after = twin(server, "a"), twin(server, "b")
    await join(server, before)
    assert await join(server, after) > membership.RENEW_SECONDS
    assert await join(server, twin(server, "b")) < 1, "a restart of the process alone"
    await server.clock.advance(membership.TWIN_SECONDS + 1)
    assert await join(server, twin(server, "c")) < 1, "it has been silent for long"


@pytest.mark.parametrize("is_elder_first", [True, False])
async def test_the_younger_of_two_servers_with_one_name_ends(
    server: LocalServer, is_elder_first: bool
) -> None:
    """Also if nothing tells their machines apart, as with copies of a running one."""
    elder, younger = twin(server, "a"), twin(server, "a")
    await join(server, elder)
    await server.clock.advance(1)
    await join(server, younger)
    names = {"elder": elder, "younger": younger}
    ended: list[str] = []

    async def run(name: str) -> None:
        try:
            await names[name].run()
        except IdentityInUse:
            ended.append(name)

    for name in sorted(names, reverse=not is_elder_first):
        server.start(run(name))
    await server.clock.advance(3 * membership.RENEW_SECONDS)
    assert ended == ["younger"]
    assert elder.is_current()
