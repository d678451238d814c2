"""The status of quotas on the only server of a store. No controller runs in these tests."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kedge.apiserver.quota.upkeep import UPKEEP_SECONDS, QuotaUpkeep
from kedge.storage.store import StoreEntry, StoreUnavailable
from kedge.testing.clock import FakeClock
from kedge.testing.local_server import LocalServer
from kedge.testing.pods import pod_document
from kedge.testing.two_servers import LaggingStore, while_time_passes

CORE = "/api/v1/namespaces/default"
QUOTA = f"{CORE}/resourcequotas/q"
PLUGINS = ("NamespaceLifecycle", "Priority", "ResourceQuota")


@pytest.fixture
async def limited() -> AsyncIterator[LocalServer]:
    """A server that heeds quotas."""
    async with LocalServer.running(admission=PLUGINS) as server:
        yield server


async def quota(server: LocalServer, hard: dict[str, str], **spec: Any) -> None:
    body = {"metadata": {"name": "q"}, "spec": {"hard": hard} | spec}
    await server.post(f"{CORE}/resourcequotas", body)


async def pod(server: LocalServer, name: str, cpu: str = "1", **spec: Any) -> None:
    container = {"resources": {"requests": {"cpu": cpu}}}
    document = pod_document(metadata={"name": name}, container=container, spec=spec)
    await server.post(f"{CORE}/pods", document)


async def used(server: LocalServer) -> dict[str, str]:
    found: dict[str, str] = (await server.get(QUOTA)).get("status", {}).get("used", {})
    return found


async def set_used(server: LocalServer, **amounts: str) -> None:
    await server.merge(f"{QUOTA}/status", {"status": {"used": amounts}})


def with_failing_puts(server: LocalServer, monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    """Let the store refuse writes of keys with a prefix."""
    put = server.store.put

    async def fail(key: str, value: bytes, **options: Any) -> StoreEntry:
        if key.startswith(prefix):
            raise StoreUnavailable("away")
        return await put(key, value, **options)

    monkeypatch.setattr(server.store, "put", fail)


async def test_a_new_object_is_in_the_status_once_its_create_is_acknowledged(
    limited: LocalServer,
) -> None:
    await quota(limited, {"pods": "5", "requests.cpu": "9"})
    await pod(limited, "a", "500m")
    assert await used(limited) == {"pods": "1", "requests.cpu": "500m"}
    await pod(limited, "b")
    found = await limited.get(QUOTA)
    assert found["status"] == {
        "hard": {"pods": "5", "requests.cpu": "9"},
        "used": {"pods": "2", "requests.cpu": "1500m"},
    }
    entries = [each for each in found["metadata"]["managedFields"] if "subresource" in each]
    assert [(each["manager"], each["operation"], each["subresource"]) for each in entries] == [
        ("kube-apiserver", "Update", "status")
    ]
    assert list(entries[0]["fieldsV1"]) == ["f:status"]


async def test_a_status_that_nobody_has_written_gets_all_amounts(limited: LocalServer) -> None:
    await limited.post(
        f"{CORE}/services", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
    )
    await quota(limited, {"pods": "5", "services": "5", "count/secrets": "5"})
    await pod(limited, "a")
    # The service `kubernetes` is the second one.
    assert await used(limited) == {"count/secrets": "0", "pods": "1", "services": "2"}


async def test_an_amount_of_a_kind_that_does_not_exist_is_left_out(limited: LocalServer) -> None:
    await quota(limited, {"pods": "5", "count/widgets.example.com": "5"})
    await pod(limited, "a")
    assert await used(limited) == {"pods": "1"}


async def test_the_status_is_written_before_the_object(limited: LocalServer) -> None:
    await quota(limited, {"pods": "5"})
    await pod(limited, "a")
    written = (await limited.get(QUOTA))["metadata"]["resourceVersion"]
    created = (await limited.get(f"{CORE}/pods/a"))["metadata"]["resourceVersion"]
    assert int(written) < int(created)


async def test_creates_that_come_together_share_writes_of_the_status() -> None:
    store = LaggingStore(clock := FakeClock())
    async with LocalServer.running(store, clock, admission=PLUGINS) as server:
        await quota(server, {"pods": "40"})
        before = store.revision
        documents = [pod_document(metadata={"name": f"p{i}"}) for i in range(60)]
        calls = [server.call("POST", f"{CORE}/pods", each) for each in documents]
        answers = await while_time_passes(clock, *calls)
        assert sorted(answer.status for answer in answers) == [201] * 40 + [403] * 20
        assert await used(server) == {"pods": "40"}
        assert store.revision - before <= 40 + 10


async def test_no_acknowledged_create_is_missing_from_the_status() -> None:
    store = LaggingStore(clock := FakeClock())
    async with LocalServer.running(store, clock, admission=PLUGINS) as server:
        await quota(server, {"pods": "40"})
        acknowledged = 0

        async def create(name: str) -> None:
            nonlocal acknowledged
            await pod(server, name)
            acknowledged += 1
            least = acknowledged
            assert int((await used(server))["pods"]) >= least

        await while_time_passes(clock, *(create(f"p{i}") for i in range(30)))


async def test_what_a_failed_create_took_leaves_the_status(
    limited: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await quota(limited, {"pods": "5"})
    await pod(limited, "a")
    with_failing_puts(limited, monkeypatch, "/registry/pods/")
    failed = await limited.call("POST", f"{CORE}/pods", pod_document(metadata={"name": "b"}))
    assert failed.status == 503
    assert await used(limited) == {"pods": "2"}
    await limited.clock.advance(UPKEEP_SECONDS)
    assert await used(limited) == {"pods": "1"}


async def test_a_create_of_an_object_that_exists_does_not_change_the_status(
    limited: LocalServer,
) -> None:
    await quota(limited, {"pods": "5"})
    await pod(limited, "a")
    before = limited.store.revision
    twice = await limited.call("POST", f"{CORE}/pods", pod_document(metadata={"name": "a"}))
    assert twice.reason == "AlreadyExists"
    assert await used(limited) == {"pods": "1"}
    assert limited.store.revision == before


async def test_a_status_that_was_set_back_is_raised(limited: LocalServer) -> None:
    await quota(limited, {"pods": "5"})
    await pod(limited, "a")
    await limited.clock.advance(1)
    await set_used(limited, pods="0")
    await limited.settle()
    assert await used(limited) == {"pods": "1"}


async def test_lowering_the_status_is_left_to_controllers(limited: LocalServer) -> None:
    await quota(limited, {"pods": "5"})
    await pod(limited, "a")
    await pod(limited, "b")
    await limited.clock.advance(1)
    await limited.delete(f"{CORE}/pods/a", {"gracePeriodSeconds": 0})
    await limited.merge(QUOTA, {"metadata": {"labels": {"a": "b"}}})
    await limited.clock.advance(1)
    assert await used(limited) == {"pods": "2"}
    await pod(limited, "c")
    assert await used(limited) == {"pods": "2"}


async def test_a_status_that_was_set_back_makes_no_room(limited: LocalServer) -> None:
    await quota(limited, {"pods": "1"})
    await pod(limited, "a")
    await set_used(limited, pods="0")
    refused = await limited.call("POST", f"{CORE}/pods", pod_document(metadata={"name": "b"}))
    assert "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1" in refused.message


async def test_a_change_of_the_quota_at_the_same_moment_is_kept() -> None:
    store = LaggingStore(clock := FakeClock())
    async with LocalServer.running(store, clock, admission=PLUGINS) as server:
        await quota(server, {"pods": "40"})
        creates = [pod(server, f"p{i}") for i in range(10)]
        labels = [server.merge(QUOTA, {"metadata": {"labels": {f"l{i}": "x"}}}) for i in range(10)]
        await while_time_passes(clock, *creates, *labels)
        found = await server.get(QUOTA)
        assert found["status"]["used"] == {"pods": "10"}
        assert len(found["metadata"]["labels"]) == 10


async def test_bounds_that_change_at_the_same_moment_come_into_the_status() -> None:
    store = LaggingStore(clock := FakeClock())
    async with LocalServer.running(store, clock, admission=PLUGINS) as server:
        await quota(server, {"pods": "40"})
        creates = [pod(server, f"p{i}") for i in range(10)]
        change = server.merge(QUOTA, {"spec": {"hard": {"requests.cpu": "40"}}})
        await while_time_passes(clock, *creates[:5], change, *creates[5:])
        await pod(server, "last")
        status = (await server.get(QUOTA))["status"]
        assert status["hard"] == {"pods": "40", "requests.cpu": "40"}
        assert status["used"] == {"pods": "11", "requests.cpu": "11"}


async def test_a_write_that_takes_nothing_does_not_change_the_quota(limited: LocalServer) -> None:
    await quota(limited, {"pods": "5", "services": "5"})
    await pod(limited, "a")
    body = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
    await limited.post(f"{CORE}/services", body)
    before = await limited.get(QUOTA)
    await limited.post(f"{CORE}/pods?dryRun=All", pod_document(metadata={"name": "b"}))
    await limited.merge(f"{CORE}/services/s", {"metadata": {"labels": {"a": "b"}}})
    await limited.post(f"{CORE}/configmaps", {"metadata": {"name": "c"}})
    refused = await limited.call("POST", f"{CORE}/pods", {"metadata": {"name": "B"}})
    assert refused.status == 422
    await limited.clock.advance(1)
    assert await limited.get(QUOTA) == before


async def test_an_update_that_takes_more_is_in_the_status(limited: LocalServer) -> None:
    await quota(limited, {"services.nodeports": "5"})
    ports = [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]
    await limited.post(f"{CORE}/services", {"metadata": {"name": "s"}, "spec": {"ports": ports}})
    await limited.merge(f"{CORE}/services/s", {"spec": {"type": "NodePort"}})
    assert await used(limited) == {"services.nodeports": "2"}


async def test_only_quotas_that_count_the_object_are_written(limited: LocalServer) -> None:
    selector = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
    await quota(limited, {"pods": "5"}, scopeSelector={"matchExpressions": [selector]})
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    await limited.post(classes, {"metadata": {"name": "high"}, "value": 1000})
    await pod(limited, "a")
    assert await used(limited) == {}
    await pod(limited, "b", priorityClassName="high")
    assert await used(limited) == {"pods": "1"}


async def test_without_a_quota_a_create_is_one_write(limited: LocalServer) -> None:
    before = limited.store.revision
    await pod(limited, "a")
    await limited.clock.advance(1)
    assert limited.store.revision - before == 1


async def test_a_create_whose_quota_cannot_be_written_fails_and_takes_nothing(
    limited: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await quota(limited, {"pods": "1"})
    with_failing_puts(limited, monkeypatch, "/registry/resourcequotas/")
    refused = await limited.call("POST", f"{CORE}/pods", pod_document())
    assert refused.status == 503
    monkeypatch.undo()
    await pod(limited, "a")
    assert await used(limited) == {"pods": "1"}


async def test_a_server_that_was_killed_before_the_object_was_stored_counts_anew() -> None:
    clock = FakeClock()
    async with LocalServer.running(clock=clock, admission=PLUGINS) as server:
        await quota(server, {"pods": "5"})
        await pod(server, "a")
        await set_used(server, pods="3")  # two pods were admitted and not stored
        store = server.store
    async with LocalServer.running(store, clock, admission=PLUGINS) as server:
        await pod(server, "b")
        assert await used(server) == {"pods": "2"}


async def test_a_quota_that_goes_meanwhile_holds_nobody_up() -> None:
    store = LaggingStore(clock := FakeClock())
    async with LocalServer.running(store, clock, admission=PLUGINS) as server:
        await quota(server, {"pods": "40"})
        creates = [pod(server, f"p{i}") for i in range(10)]
        await while_time_passes(clock, *creates[:5], server.delete(QUOTA), *creates[5:])
        assert len((await server.get(f"{CORE}/pods"))["items"]) == 10


@pytest.mark.parametrize("memory", ["4Ei", "9" * 1000 + "E"])
async def test_a_sum_that_cannot_be_read_is_written_once_and_readably(
    limited: LocalServer, memory: str
) -> None:
    container = {"resources": {"requests": {"memory": memory}}}
    for name in ("a", "b", "c"):
        document = pod_document(metadata={"name": name}, container=container)
        await limited.post(f"{CORE}/pods", document)
    await quota(limited, {"pods": "9", "requests.memory": "1Gi"})
    small = {"resources": {"requests": {"memory": "0"}}}
    await limited.post(f"{CORE}/pods", pod_document(metadata={"name": "d"}, container=small))
    assert await used(limited) == {"pods": "4", "requests.memory": str(2**63 - 1)}
    await limited.merge(QUOTA, {"metadata": {"labels": {"a": "b"}}})
    before = limited.store.revision
    for _ in range(5):
        await limited.clock.advance(UPKEEP_SECONDS)
    assert limited.store.revision == before


async def test_who_waited_behind_a_write_that_failed_is_in_the_status_of_its_quota(
    limited: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await quota(limited, {"pods": "9"})
    body = {"metadata": {"name": "r"}, "spec": {"hard": {"count/secrets": "9"}}}
    await limited.post(f"{CORE}/resourcequotas", body)
    await limited.clock.advance(1)
    put, tries, found = limited.store.put, 0, []

    async def fail_once(key: str, value: bytes, **options: Any) -> StoreEntry:
        nonlocal tries
        if key.endswith("/q"):
            tries += 1
            if (number := tries) == 1:
                await limited.clock.sleep(1)  # the others wait meanwhile
            if number == 2:
                raise StoreUnavailable("away")
        if key.startswith("/registry/secrets/"):
            found.append((await limited.get(f"{CORE}/resourcequotas/r")).get("status"))
        return await put(key, value, **options)

    monkeypatch.setattr(limited.store, "put", fail_once)
    # It would write the status of all quotas, sooner or later.
    monkeypatch.setattr(QuotaUpkeep, "add", lambda self, namespace: None)

    async def create(kind: str, document: dict[str, Any], after: float) -> int:
        await limited.clock.sleep(after)
        return (await limited.call("POST", f"{CORE}/{kind}", document)).status

    pods = [
        create("pods", pod_document(metadata={"name": name}), after)
        for name, after in (("a", 0), ("b", 0.2), ("c", 0.4))
    ]
    secret = create("secrets", {"metadata": {"name": "s"}}, 0.6)
    answers = await while_time_passes(limited.clock, *pods, secret)
    assert answers == [201, 503, 201, 201]
    assert found == [{"hard": {"count/secrets": "9"}, "used": {"count/secrets": "1"}}]


async def test_an_object_that_no_quota_counts_does_not_wait_for_a_status(
    limited: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await quota(limited, {"pods": "9"})
    put = limited.store.put

    async def be_slow(key: str, value: bytes, **options: Any) -> StoreEntry:
        if key.endswith("/q"):
            await limited.clock.sleep(9)
        return await put(key, value, **options)

    monkeypatch.setattr(limited.store, "put", be_slow)
    creating = limited.start(pod(limited, "a"))
    await limited.clock.advance(1)
    began = limited.clock.monotonic()
    await while_time_passes(
        limited.clock, limited.post(f"{CORE}/secrets", {"metadata": {"name": "s"}})
    )
    assert limited.clock.monotonic() < began + 1
    await limited.clock.advance(60)
    assert creating.done()
