"""Quotas under writers on two servers of one store."""

import asyncio
from typing import Any

import msgspec
import pytest

from kedge.apiserver.quota.shared_claims import KEYS, PATIENCE_SECONDS
from kedge.machinery.write_guard import WriteGuard, guarded
from kedge.storage.memory import MemoryStore
from kedge.storage.store import StoreEntry, StoreUnavailable, WriteOutcomeUnknown
from kedge.testing.local_server import LocalAnswer, LocalServer
from kedge.testing.pods import pod_document
from kedge.testing.two_servers import two_servers, while_time_passes

CORE = "/api/v1/namespaces/default"
PLUGINS = ("NamespaceLifecycle", "ResourceQuota")


async def quota(server: LocalServer, other: LocalServer, **hard: str) -> None:
    body = {"metadata": {"name": "q"}, "spec": {"hard": hard}}
    await server.post(f"{CORE}/resourcequotas", body)
    await other.app.api.cache.reached(other.store.revision)


async def create(server: LocalServer, name: str) -> LocalAnswer:
    return await server.call("POST", f"{CORE}/pods", pod_document(metadata={"name": name}))


async def record(store: MemoryStore) -> list[dict[str, Any]]:
    found = await store.get(f"{KEYS}default")
    assert found is not None
    return list(msgspec.json.decode(found.value))


@pytest.mark.parametrize("seed", range(5))
async def test_of_writers_on_two_servers_exactly_as_many_are_admitted_as_fit(seed: int) -> None:
    async with two_servers(*PLUGINS, seed=seed) as (one, other):
        await quota(one, other, pods="20")
        answers = await while_time_passes(
            one.clock, *(create((one, other)[i % 2], f"p{i}") for i in range(60))
        )
        assert sorted(answer.status for answer in answers) == [201] * 20 + [403] * 40
        await other.app.api.cache.reached(other.store.revision)
        assert len((await other.get(f"{CORE}/pods"))["items"]) == 20


async def test_writes_that_fail_elsewhere_leave_their_room_to_others() -> None:
    async with two_servers(*PLUGINS) as (one, other):
        await quota(one, other, pods="2")
        await while_time_passes(one.clock, create(one, "a"))
        twice = [create((one, other)[i % 2], "a") for i in range(8)]
        answers = await while_time_passes(one.clock, *twice, create(other, "b"))
        assert answers[-1].status == 201
        assert {answer.status for answer in answers[:-1]} <= {403, 409}


async def test_a_record_holds_only_writes_that_are_under_way() -> None:
    async with two_servers(*PLUGINS) as (one, other):
        await quota(one, other, pods="5")
        await while_time_passes(one.clock, create(one, "a"), create(other, "b"))
        await one.clock.advance(2)
        assert await record(one.store) == []


async def test_a_record_is_cleaned_although_the_store_was_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two_servers(*PLUGINS) as (one, other):
        await quota(one, other, pods="1")
        await while_time_passes(one.clock, create(one, "a"))
        put = one.store.put

        async def fail(key: str, value: bytes, **options: Any) -> StoreEntry:
            if key.startswith(KEYS):
                raise StoreUnavailable("away")
            return await put(key, value, **options)

        monkeypatch.setattr(one.store, "put", fail)
        await one.clock.advance(1)
        monkeypatch.setattr(one.store, "put", put)
        assert len(await record(one.store)) == 1
        await one.clock.advance(5)
        assert await record(one.store) == []


async def test_a_claim_whose_write_has_no_known_outcome_leaves_the_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two_servers(*PLUGINS) as (one, other):
        await quota(one, other, pods="1")
        put = one.store.put

        async def lose_answer(key: str, value: bytes, **options: Any) -> StoreEntry:
            entry = await put(key, value, **options)
            if key.startswith(KEYS):
                raise WriteOutcomeUnknown("no answer")
            return entry

        monkeypatch.setattr(one.store, "put", lose_answer)
        [answer] = await while_time_passes(one.clock, create(one, "a"))
        monkeypatch.setattr(one.store, "put", put)
        assert answer.status == 504
        await one.clock.advance(5)
        assert await record(one.store) == []
        [made] = await while_time_passes(one.clock, create(other, "b"))
        assert made.status == 201


async def test_room_that_was_freed_on_one_server_is_given_by_the_other() -> None:
    async with two_servers(*PLUGINS) as (one, other):
        await quota(one, other, pods="1")
        for i in range(3):
            [made] = await while_time_passes(one.clock, create(one, f"a{i}"))
            assert made.status == 201
            await one.delete(f"{CORE}/pods/a{i}", {"gracePeriodSeconds": 0})
            await other.app.api.cache.reached(other.store.revision)
            [made] = await while_time_passes(one.clock, create(other, f"b{i}"))
            assert made.status == 201, made.text
            await other.delete(f"{CORE}/pods/b{i}", {"gracePeriodSeconds": 0})
            await one.app.api.cache.reached(one.store.revision)


async def test_claims_of_a_killed_server_count_for_a_while_only() -> None:
    async with two_servers(*PLUGINS) as (one, other):
        await quota(one, other, pods="1")
        left = [{"server": "gone", "key": "/registry/pods/default/x", "usage": {"pods": "1"}}]
        await one.store.put(f"{KEYS}default", msgspec.json.encode(left), expect=0)
        [refused] = await while_time_passes(one.clock, create(one, "a"))
        assert refused.status == 403
        await one.clock.advance(121)
        [made] = await while_time_passes(one.clock, create(one, "a"))
        assert made.status == 201


async def test_a_new_write_of_an_object_that_was_written_long_ago_counts() -> None:
    async with two_servers(*PLUGINS) as (one, other):
        await quota(one, other, pods="1")
        claim = {"server": "third", "key": "/registry/pods/default/x", "usage": {"pods": "1"}}
        revision = 0
        for number in (1, 2):
            left = [claim | {"number": number}]
            value = msgspec.json.encode(left)
            revision = (await one.store.put(f"{KEYS}default", value, expect=revision)).revision
            [refused] = await while_time_passes(one.clock, create(one, "a"))
            assert refused.status == 403
            await one.clock.advance(121)


async def test_a_refusal_does_not_wait_for_the_refusals_of_later_writes() -> None:
    async with two_servers(*PLUGINS) as (one, other):
        await quota(one, other, pods="1")
        left = [{"server": "gone", "key": "/registry/pods/default/x", "usage": {"pods": "1"}}]
        await one.store.put(f"{KEYS}default", msgspec.json.encode(left), expect=0)
        took: list[float] = []

        async def refused(name: str) -> None:
            began = one.clock.monotonic()
            assert (await create(one, name)).status == 403
            took.append(one.clock.monotonic() - began)

        async with asyncio.TaskGroup() as tasks:
            for i in range(30):
                tasks.create_task(refused(f"p{i}"))
                await one.clock.advance(0.2)
            await one.clock.advance(3)
        assert max(took) < 2 * PATIENCE_SECONDS


async def test_a_dry_run_takes_no_room() -> None:
    async with two_servers(*PLUGINS) as (one, other):
        await quota(one, other, pods="1")
        url = f"{CORE}/pods?dryRun=All"
        dry = one.call("POST", url, pod_document(metadata={"name": "dry"}))
        [answer] = await while_time_passes(one.clock, dry)
        assert answer.status == 201
        [made] = await while_time_passes(one.clock, create(other, "a"))
        assert made.status == 201


async def test_a_leader_that_was_replaced_fails_no_write_of_others() -> None:
    async with two_servers(*PLUGINS) as (one, other):
        await quota(one, other, pods="2")
        late = guarded(WriteGuard("/kedge/leaders/kube-scheduler", 1), create(one, "a"))
        answers = await while_time_passes(one.clock, late, create(one, "b"))
        assert [answer.status for answer in answers] == [503, 201]
        await one.clock.advance(2)
        assert await record(one.store) == []


async def used(server: LocalServer) -> int:
    status = (await server.get(f"{CORE}/resourcequotas/q"))["status"]
    return int(status["used"]["pods"])


@pytest.mark.parametrize("clients", [2, 8])
@pytest.mark.parametrize("seed", range(10))
async def test_no_acknowledged_create_is_missing_from_the_status(clients: int, seed: int) -> None:
    async with two_servers(*PLUGINS, seed=seed) as (one, other):
        await quota(one, other, pods="100")
        acknowledged = 0

        async def create_and_look(server: LocalServer, client: int) -> None:
            nonlocal acknowledged
            for i in range(40 // clients):
                assert (await create(server, f"p{client}-{i}")).status == 201
                acknowledged += 1
                least = acknowledged
                await server.app.api.cache.reached(server.store.revision)
                assert await used(server) >= least

        work = (create_and_look((one, other)[i % 2], i) for i in range(clients))
        await while_time_passes(one.clock, *work)
        assert await used(one) == 40


@pytest.mark.parametrize("seed", range(5))
async def test_what_failed_creates_took_leaves_the_status(seed: int) -> None:
    async with two_servers(*PLUGINS, seed=seed) as (one, other):
        await quota(one, other, pods="100")
        # Of each pair with one name, one fails.
        answers = await while_time_passes(
            one.clock, *(create((one, other)[i % 2], f"p{i // 2}") for i in range(40))
        )
        assert sorted(answer.status for answer in answers) == [201] * 20 + [409] * 20
        await one.clock.advance(2)
        await one.app.api.cache.reached(one.store.revision)
        assert await used(one) == 20


async def test_a_status_that_was_set_back_is_raised_once() -> None:
    async with two_servers(*PLUGINS) as (one, other):
        await quota(one, other, pods="5")
        await while_time_passes(one.clock, create(one, "a"), create(other, "b"))
        await one.clock.advance(2)
        before = one.store.revision
        status = {"status": {"used": {"pods": "0"}}}
        await while_time_passes(one.clock, other.merge(f"{CORE}/resourcequotas/q/status", status))
        await one.clock.advance(2)
        assert await used(one) == 2
        # Both servers notice, and one of them writes.
        assert one.store.revision - before == 2


async def test_an_amount_that_cannot_be_read_back_does_not_disturb_other_servers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two_servers(*PLUGINS) as (one, other):
        await quota(one, other, pods="9")
        put = one.store.put

        async def be_slow(key: str, value: bytes, **options: Any) -> StoreEntry:
            if key.endswith("/pods/default/huge"):
                await one.clock.sleep(5)
            return await put(key, value, **options)

        monkeypatch.setattr(one.store, "put", be_slow)
        # The sum of two amounts that have as many digits as can be read.
        container = {"resources": {"requests": {"memory": "9" * 1000 + "E"}}}
        document = pod_document(metadata={"name": "huge"}, container=container)
        containers = document["spec"]["containers"]
        containers.append({**containers[0], "name": "second"})
        creating = one.start(one.post(f"{CORE}/pods", document))
        await one.clock.advance(1)
        assert len(await record(one.store)) == 1
        [made] = await while_time_passes(one.clock, create(other, "a"))
        assert made.status == 201
        await one.clock.advance(9)
        await creating
