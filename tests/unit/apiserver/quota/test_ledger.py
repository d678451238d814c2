import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from kedge.api.core_v1 import config_map, resource_quota
from kedge.api.core_v1.pod import pod
from kedge.api.resource import Resource
from kedge.api.resource_v1 import device_class, resource_claim
from kedge.apiserver.api import to_stored_bytes
from kedge.apiserver.quota.ledger import QuotaLedger
from kedge.apiserver.request import Request
from kedge.apiserver.watchcache import WatchCache
from kedge.storage.memory import MemoryStore
from kedge.testing.admission import attempt
from kedge.testing.clock import FakeClock
from kedge.testing.pods import new_pod, pod_document

RESOURCES: tuple[Resource[Any], ...] = (
    config_map.RESOURCE,
    pod.RESOURCE,
    resource_quota.RESOURCE,
    device_class.RESOURCE,
    resource_claim.RESOURCE,
)


class Bench:
    """A ledger on a store, and writers that go through both."""

    def __init__(self, store: MemoryStore, cache: WatchCache, clock: FakeClock) -> None:
        self.store = store
        self.clock = clock
        self.ledger = QuotaLedger(cache, clock)

    async def put(self, resource: Resource[Any], document: dict[str, Any]) -> None:
        """Store an object, whether or not it is there, and let the cache see it."""
        meta = document["metadata"]
        key = resource.key(meta.get("namespace", ""), meta["name"])
        present = await self.store.get(key)
        expect = present.revision if present is not None else 0
        await self.store.put(key, to_stored_bytes(resource, document), expect=expect)
        await self.clock.advance(0)

    async def delete(self, resource: Resource[Any], name: str) -> None:
        key = resource.key("default", name)
        present = await self.store.get(key)
        assert present is not None
        await self.store.delete(key, expect=present.revision)
        await self.clock.advance(0)

    async def quota(self, hard: dict[str, str], name: str = "q", **spec: Any) -> None:
        meta = {"name": name, "namespace": "default"}
        await self.put(resource_quota.RESOURCE, {"metadata": meta, "spec": {"hard": hard} | spec})

    def admit(self, name: str, cpu: str = "") -> tuple[Request, str]:
        """Claim room for a pod and hold it if there is any; says why not otherwise."""
        wanted = new_pod(metadata={"name": name}, container=_asking(cpu))
        request = attempt(pod.RESOURCE, "CREATE", wanted).request
        claim = self.ledger.claim(request, wanted, new=True)
        assert claim is not None
        if not claim.refusal:
            self.ledger.hold(request, claim)
        return request, claim.refusal

    async def create(self, name: str, cpu: str = "") -> str:
        """A whole write; says why it was refused."""
        request, refusal = self.admit(name, cpu)
        if not refusal:
            await self.put(pod.RESOURCE, _document(name, cpu))
            self.ledger.release(request)
        return refusal


def _asking(cpu: str) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu}}} if cpu else {}


def _document(name: str, cpu: str = "", **meta: Any) -> dict[str, Any]:
    return pod_document(metadata={"name": name} | meta, container=_asking(cpu))


def _doomed(end: str) -> dict[str, Any]:
    return {"deletionTimestamp": end, "deletionGracePeriodSeconds": 10}


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    clock = FakeClock()
    store = MemoryStore(clock)
    cache = WatchCache(store)
    await cache.load(RESOURCES)
    following = asyncio.get_running_loop().create_task(cache.run())
    try:
        yield Bench(store, cache, clock)
    finally:
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following


def full(name: str = "q") -> str:
    return f"exceeded quota: {name}, requested: pods=1, used: pods=1, limited: pods=1"


async def test_a_namespace_is_limited_as_long_as_it_has_a_quota() -> None:
    async with bench() as b:
        assert not b.ledger.limits("default")
        await b.quota({"pods": "1"})
        assert b.ledger.limits("default")
        assert not b.ledger.limits("other")
        await b.delete(resource_quota.RESOURCE, "q")
        assert not b.ledger.limits("default")


async def test_what_was_there_before_the_quota_counts() -> None:
    async with bench() as b:
        await b.put(pod.RESOURCE, _document("old"))
        await b.quota({"pods": "1"})
        assert await b.create("new") == full()


async def test_room_is_taken_from_the_moment_of_admission() -> None:
    async with bench() as b:
        await b.quota({"pods": "1"})
        assert b.admit("one")[1] == ""
        assert b.admit("two")[1] == full()


async def test_a_write_that_fails_gives_its_room_back() -> None:
    async with bench() as b:
        await b.quota({"pods": "1"})
        failing, _ = b.admit("one")
        b.ledger.release(failing)
        assert await b.create("two") == ""
        b.ledger.release(failing)
        assert await b.create("three") == full()


async def test_a_deletion_gives_room() -> None:
    async with bench() as b:
        await b.quota({"pods": "1"})
        await b.create("one")
        await b.delete(pod.RESOURCE, "one")
        assert await b.create("two") == ""


async def test_of_two_writers_of_one_name_the_loser_does_not_take_the_winners_room_along() -> None:
    async with bench() as b:
        await b.quota({"pods": "2"})
        winner, _ = b.admit("same")
        loser, _ = b.admit("same")
        b.ledger.release(loser)
        assert b.admit("other")[1] == ""
        assert b.admit("third")[1] != ""
        await b.put(pod.RESOURCE, _document("same"))
        b.ledger.release(winner)
        assert b.admit("third")[1] != ""


async def test_a_new_object_needs_room_of_its_own_even_if_its_name_is_taken() -> None:
    async with bench() as b:
        await b.quota({"pods": "1"})
        await b.create("same")
        assert b.admit("same")[1] == full()


async def test_an_update_needs_room_only_for_what_it_adds() -> None:
    async with bench() as b:
        await b.quota({"requests.cpu": "3", "pods": "1"})
        await b.create("one", "2")
        for cpu, refusal in (
            ("3", ""),
            (
                "4",
                "exceeded quota: q, requested: requests.cpu=2, used: requests.cpu=2, "
                "limited: requests.cpu=3",
            ),
            ("1", ""),
        ):
            wanted = new_pod(metadata={"name": "one"}, container=_asking(cpu))
            request = attempt(pod.RESOURCE, "UPDATE", wanted, wanted).request
            claim = b.ledger.claim(request, wanted, new=False)
            assert claim is not None
            assert claim.refusal == refusal


async def test_less_is_free_only_when_it_is_stored() -> None:
    async with bench() as b:
        await b.quota({"requests.cpu": "3"})
        await b.create("one", "2")
        smaller = new_pod(metadata={"name": "one"}, container=_asking("1"))
        request = attempt(pod.RESOURCE, "UPDATE", smaller, smaller).request
        claim = b.ledger.claim(request, smaller, new=False)
        assert claim is not None
        b.ledger.hold(request, claim)
        assert b.admit("two", "2")[1] != ""
        await b.put(pod.RESOURCE, _document("one", "1"))
        b.ledger.release(request)
        assert b.admit("two", "2")[1] == ""


async def test_a_quota_that_changes_is_counted_anew_with_what_is_under_way() -> None:
    async with bench() as b:
        await b.quota({"pods": "9"})
        await b.create("stored")
        b.admit("under-way")
        await b.quota({"pods": "2"})
        assert b.admit("one-more")[1] == (
            "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2"
        )


async def test_every_quota_of_the_namespace_must_have_room() -> None:
    async with bench() as b:
        await b.quota({"pods": "9"}, "large")
        await b.quota({"pods": "0"}, "z-small")
        assert "exceeded quota: z-small" in await b.create("one")
        await b.delete(resource_quota.RESOURCE, "z-small")
        assert await b.create("one") == ""


async def test_a_pod_that_ends_or_overstays_its_time_makes_room() -> None:
    async with bench() as b:
        await b.quota({"pods": "1"})
        await b.create("one")
        await b.put(pod.RESOURCE, _document("one") | {"status": {"phase": "Succeeded"}})
        assert await b.create("two") == ""
        await b.put(pod.RESOURCE, _document("two", **_doomed("2030-01-01T00:00:10Z")))
        assert await b.create("three") == full()
        await b.clock.advance(21)
        assert await b.create("three") == ""


async def test_a_pod_that_cannot_be_counted_is_refused_before_any_sum() -> None:
    async with bench() as b:
        await b.quota({"pods": "0"}, "a")
        await b.quota({"requests.cpu": "1"}, "b")
        assert await b.create("one") == "failed quota: b: must specify requests.cpu for: ctr"


async def test_the_status_of_a_quota_is_not_asked_for_what_is_used() -> None:
    async with bench() as b:
        await b.quota({"pods": "1"})
        await b.create("one")
        meta = {"name": "q", "namespace": "default"}
        lies = {"hard": {"pods": "9"}, "used": {"pods": "0"}}
        document = {"metadata": meta, "spec": {"hard": {"pods": "1"}}, "status": lies}
        await b.put(resource_quota.RESOURCE, document)
        assert await b.create("two") == full()


async def test_objects_of_other_kinds_and_namespaces_do_not_count() -> None:
    async with bench() as b:
        await b.quota({"pods": "1", "count/configmaps": "1"})
        await b.put(pod.RESOURCE, _document("far", namespace="other"))
        await b.put(config_map.RESOURCE, {"metadata": {"name": "c", "namespace": "default"}})
        assert await b.create("one") == ""
        wanted = config_map.RESOURCE.from_document(
            {"metadata": {"name": "d", "namespace": "default"}}
        )
        request = attempt(config_map.RESOURCE, "CREATE", wanted).request
        claim = b.ledger.claim(request, wanted, new=True)
        assert claim is not None
        assert "count/configmaps=1" in claim.refusal


async def test_pods_and_claims_share_the_extended_resource_of_a_class() -> None:
    async with bench() as place:
        name = "d.example/gpu"
        await place.quota({f"requests.{name}": "3"})
        wants = {"resources": {"requests": {name: "2"}, "limits": {name: "2"}}}
        await place.put(pod.RESOURCE, pod_document(metadata=_MINE | {"name": "p"}, container=wants))
        claim = resource_claim.RESOURCE.from_document(_claim("c", 2))
        request = attempt(resource_claim.RESOURCE, "CREATE", claim).request
        found = place.ledger.claim(request, claim, new=True)
        assert found is not None
        assert not found.refusal
        class_ = {"metadata": {"name": "gpus"}, "spec": {"extendedResourceName": name}}
        await place.put(device_class.RESOURCE, class_)
        found = place.ledger.claim(request, claim, new=True)
        assert found is not None
        assert found.refusal == (
            f"exceeded quota: q, requested: requests.{name}=2, used: requests.{name}=2, "
            f"limited: requests.{name}=3"
        )
        covered = resource_claim.RESOURCE.from_document(_claim("e", 2, made_for="p"))
        request = attempt(resource_claim.RESOURCE, "CREATE", covered).request
        found = place.ledger.claim(request, covered, new=True)
        assert found is not None
        assert not found.refusal
        place.ledger.hold(request, found)
        await place.put(resource_claim.RESOURCE, _claim("e", 2, made_for="p"))
        place.ledger.release(request)
        # Without its pod it counts itself.
        await place.delete(pod.RESOURCE, "p")
        request = attempt(resource_claim.RESOURCE, "CREATE", claim).request
        found = place.ledger.claim(request, claim, new=True)
        assert found is not None
        assert f"used: requests.{name}=2" in found.refusal


_MINE = {"namespace": "default"}


def _claim(name: str, count: int, made_for: str = "") -> dict[str, Any]:
    exactly = {"deviceClassName": "gpus", "allocationMode": "ExactCount", "count": count}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": made_for, "uid": "1", "controller": True}
    special = {
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": [owner],
    }
    return {
        "metadata": {**_MINE, "name": name, **(special if made_for else {})},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
    }
