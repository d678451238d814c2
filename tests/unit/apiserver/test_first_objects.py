"""The objects of an empty store are those that a server would create one by one."""

import re
from random import Random
from typing import Any

import msgspec

from kedge.apiserver import bootstrap, first_objects, joining
from kedge.apiserver.authorization import policy
from kedge.apiserver.config import UPSTREAM_ADMISSION
from kedge.apiserver.server import begin
from kedge.storage.memory import MemoryStore
from kedge.testing.clock import FakeClock
from kedge.testing.local_server import LocalServer

UID = re.compile(rb'"uid":"[0-9a-f-]{36}"')


async def entries(store: MemoryStore) -> dict[str, bytes]:
    page = await store.list("/registry/")
    return {each.key: each.value for each in page.entries}


async def written(seed: int) -> dict[str, bytes]:
    store = MemoryStore(FakeClock())
    await first_objects.write_first(store, FakeClock(), Random(seed))
    return await entries(store)


async def created() -> dict[str, bytes]:
    """All plugins on, so that a plugin which would change one of the objects is noticed."""
    async with LocalServer.running(admission=UPSTREAM_ADMISSION) as server:
        await joining.ensure(server.app.api, "https://127.0.0.1:6443", b"")
        return await entries(server.store)


def without_uid(values: dict[str, bytes]) -> dict[str, Any]:
    return {key: msgspec.json.decode(UID.sub(b'"uid":""', each)) for key, each in values.items()}


async def test_first_objects_are_the_same_as_created_ones() -> None:
    ours, theirs = without_uid(await written(1)), without_uid(await created())
    assert {key: theirs[key] for key in ours} == ours
    # What is left needs an address, a port or a certificate.
    rest = {key.split("/")[2] for key in theirs.keys() - ours.keys()}
    assert rest == {"services", "configmaps", "servicecidrs", "ipaddresses"}


async def test_their_bytes_are_those_of_created_ones() -> None:
    ours, theirs = await written(1), await created()
    for key, value in ours.items():
        assert UID.sub(b"", value) == UID.sub(b"", theirs[key])


async def test_each_cluster_has_its_own_uids() -> None:
    uids = [UID.findall(each)[0] for seed in (1, 2) for each in (await written(seed)).values()]
    assert len(uids) == len(set(uids))


async def test_a_store_with_objects_is_left_alone() -> None:
    store = MemoryStore(FakeClock())
    await store.put("/registry/configmaps/default/a", b"{}", expect=0)
    assert not await begin(store, FakeClock())
    assert list(await entries(store)) == ["/registry/configmaps/default/a"]


async def test_objects_of_a_server_that_begins_at_the_same_moment_stay() -> None:
    store = MemoryStore(FakeClock())
    await first_objects.write_first(store, FakeClock(), Random(1))
    before = await entries(store)
    await first_objects.write_first(store, FakeClock(), Random(2))
    assert await entries(store) == before


async def test_a_server_has_nothing_to_mend_in_them() -> None:
    store = MemoryStore(FakeClock())
    await first_objects.write_first(store, FakeClock(), Random(1))
    before = await entries(store)
    async with LocalServer.running(store) as server:
        await policy.ensure(server.app.api)
        await bootstrap.ensure(server.app.api, "127.0.0.1", 6443)
        after = await entries(server.store)
    assert {key: after[key] for key in before} == before


async def test_a_server_without_nodes_grants_them_nothing() -> None:
    store = MemoryStore(FakeClock())
    assert await begin(store, FakeClock(), has_nodes=False)
    found = await entries(store)
    assert "/registry/namespaces/default" in found
    assert not [key for key in found if "kubeadm:" in key]
