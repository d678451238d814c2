"""Node ports and addresses under writers on two servers of one store."""

from typing import Any

import pytest

from kedge.apiserver.allocation.node_ports import PortInUse
from kedge.apiserver.allocation.port_records import KEYS, PortRecords
from kedge.storage.memory import MemoryStore
from kedge.storage.store import StoreEntry
from kedge.testing.clock import FakeClock
from kedge.testing.local_server import MERGE, LocalAnswer, LocalServer
from kedge.testing.two_servers import two_servers, while_time_passes

SERVICES = "/api/v1/namespaces/default/services"


async def create(server: LocalServer, name: str, port: int = 0, address: str = "") -> LocalAnswer:
    ports: list[dict[str, Any]] = [{"port": 80} | ({"nodePort": port} if port else {})]
    spec: dict[str, Any] = {"type": "NodePort", "ports": ports}
    if address:
        spec["clusterIP"] = address
    return await server.call("POST", SERVICES, {"metadata": {"name": name}, "spec": spec})


def node_port(answer: LocalAnswer) -> int:
    return int(answer.document["spec"]["ports"][0]["nodePort"])


async def test_a_port_is_claimed_once() -> None:
    clock = FakeClock()
    records = PortRecords(MemoryStore(clock), clock)
    await records.store(30001, "a", lambda _: False)
    with pytest.raises(PortInUse):
        await records.store(30001, "b", lambda _: False)
    assert records.is_busy(30001)
    await clock.advance(6)
    assert not records.is_busy(30001)


async def test_a_claim_ends_by_itself() -> None:
    clock = FakeClock()
    records = PortRecords(MemoryStore(clock), clock)
    await records.store(30001, "a", lambda _: False)
    await clock.advance(121)
    await records.store(30001, "b", lambda _: False)


async def test_a_newer_claim_is_not_deleted() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    records = PortRecords(store, clock)
    revision = await records.store(30001, "a", lambda _: False)
    await records.store(30001, "b", lambda found: found == revision)
    records.delete_soon(30001, revision)
    kept = await store.get(f"{KEYS}30001")
    assert kept is not None
    assert kept.value == b"b"


@pytest.mark.parametrize("seed", range(8))
async def test_two_servers_never_give_one_port_or_address_twice(seed: int) -> None:
    async with two_servers(seed=seed) as (one, other):
        for port in range(30010, 30014):
            address = f"10.96.0.{port - 30000}"
            answers = await while_time_passes(
                one.clock,
                create(one, f"p{port}", port),
                create(other, f"q{port}", port),
                create(one, f"a{port}", address=address),
                create(other, f"b{port}", address=address),
            )
            codes = [answer.status for answer in answers]
            assert sorted(codes[:2]) == [201, 422], [answer.text for answer in answers[:2]]
            assert sorted(codes[2:]) == [201, 422], [answer.text for answer in answers[2:]]


@pytest.mark.parametrize("seed", range(4))
async def test_two_servers_draw_different_ports_and_addresses(seed: int) -> None:
    async with two_servers(seed=seed) as (one, other):
        answers = await while_time_passes(
            one.clock, *(create((one, other)[i % 2], f"s{i}") for i in range(30))
        )
        assert {answer.status for answer in answers} == {201}
        assert len({node_port(answer) for answer in answers}) == 30
        assert len({answer.document["spec"]["clusterIP"] for answer in answers}) == 30


async def test_what_was_given_up_on_one_server_is_given_by_the_other() -> None:
    async with two_servers() as (one, other):
        for i in range(4):
            server, next_one = ((one, other), (other, one))[i % 2]
            [made] = await while_time_passes(
                one.clock, create(server, f"s{i}", 30001, "10.96.0.77")
            )
            assert made.status == 201, made.text
            await server.delete(f"{SERVICES}/s{i}")
            await next_one.app.api.cache.reached(next_one.store.revision)


@pytest.mark.parametrize("spec", [{"ports": [{"port": 80, "nodePort": 30001}]}, {}])
async def test_an_update_that_lost_a_race_gets_the_port_that_it_has_claimed(
    monkeypatch: pytest.MonkeyPatch, spec: dict[str, Any]
) -> None:
    async with two_servers() as (one, _):
        body = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
        await while_time_passes(one.clock, one.call("POST", SERVICES, body))
        put = one.store.put
        raced: list[str] = []

        async def race(key: str, value: bytes, **options: Any) -> StoreEntry:
            found = await one.store.get(key)
            if found is not None and key.endswith("/default/s") and not raced:
                raced.append(key)
                await put(key, found.value, expect=found.revision)
            return await put(key, value, **options)

        monkeypatch.setattr(one.store, "put", race)
        patch = one.call(
            "PATCH",
            f"{SERVICES}/s",
            {"spec": {"type": "NodePort"} | spec},
            content_type=MERGE,
        )
        [answer] = await while_time_passes(one.clock, patch)
        assert raced
        assert answer.status == 200, answer.text
