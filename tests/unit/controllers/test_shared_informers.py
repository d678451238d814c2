import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from kedge.api.core_v1.config_map import RESOURCE, ConfigMap
from kedge.api.model import ObjectMeta, OwnerReference
from kedge.client.informer import Key
from kedge.controllers.shared_informers import ObjectCache, SharedInformers
from kedge.testing.clock import FakeClock
from kedge.testing.local_server import LocalServer

MAPS = "/api/v1/namespaces/default/configmaps"


def config(name: str, version: int, *, owner: str = "", namespace: str = "default") -> ConfigMap:
    owners = [OwnerReference(kind="Job", name="j", uid=owner, controller=True)] if owner else []
    meta = ObjectMeta(
        name=name,
        namespace=namespace,
        uid=f"uid-{name}",
        resourceVersion=str(version),
        ownerReferences=owners,
    )
    return ConfigMap(metadata=meta)


def names(found: list[ConfigMap]) -> list[str]:
    return sorted(each.metadata.name for each in found)


def test_objects_are_found_by_owner_and_namespace_as_they_change() -> None:
    known: ObjectCache[ConfigMap] = ObjectCache()
    [*known.replace([config("a", 1, owner="x"), config("b", 2), config("c", 3, namespace="far")])]
    assert names(known.owned("x")) == ["a"]
    assert names(known.within("default")) == ["a", "b"]
    known.put(config("b", 4, owner="x"))
    known.put(config("a", 5, owner="y"))
    assert (names(known.owned("x")), names(known.owned("y"))) == (["b"], ["a"])
    known.remove(config("a", 6, owner="y"))
    assert (known.owned("y"), names(known.within("default"))) == ([], ["b"])
    [*known.replace([config("c", 3, namespace="far")])]
    assert (known.owned("x"), known.within("default")) == ([], [])


def test_followers_are_told_what_was_and_what_is_once_all_is_known() -> None:
    known: ObjectCache[ConfigMap] = ObjectCache()
    told: list[tuple[str, str, int]] = []

    def follow(before: ConfigMap | None, now: ConfigMap | None) -> None:
        versions = [each.metadata.resourceVersion if each else "" for each in (before, now)]
        told.append((*versions, len(known)))  # type: ignore[arg-type]

    known.follow(follow)
    [*known.replace([config("a", 1), config("b", 2)])]
    known.put(config("a", 3))
    known.remove(config("b", 4))
    [*known.replace([config("c", 5)])]
    assert told == [
        ("", "1", 2),
        ("", "2", 2),
        ("1", "3", 2),
        ("2", "", 1),
        ("3", "", 1),
        ("", "5", 1),
    ]


def test_those_who_group_by_the_same_function_share_an_index() -> None:
    def version(each: ConfigMap) -> str:
        return each.metadata.resourceVersion

    known: ObjectCache[ConfigMap] = ObjectCache()
    index = known.by(version)
    assert known.by(version) is index
    assert known.by(lambda each: each.metadata.name) is not index


def test_labels_are_followed_as_they_change() -> None:
    known: ObjectCache[ConfigMap] = ObjectCache()
    index = known.by_labels()
    red, blue = ({"colour": colour} for colour in ("red", "blue"))

    def colours() -> list[list[str]]:
        return [names(index.selected("default", each.__eq__)) for each in (red, blue)]

    for name, labels in (("a", red), ("b", red), ("a", blue), ("b", red)):
        obj = config(name, 1)
        known.put(replace(obj, metadata=replace(obj.metadata, labels=labels)))
    assert colours() == [["b"], ["a"]]
    for name in "ab":
        known.remove(config(name, 9))
    assert colours() == [[], []]


def test_an_index_that_is_asked_for_late_knows_what_is_there() -> None:
    known: ObjectCache[ConfigMap] = ObjectCache()
    known.put(config("a", 1))
    first = known.by(lambda each: each.metadata.name[0])
    known.put(config("ab", 2))
    assert names(first.get("a")) == ["a", "ab"]
    assert (first.count("a"), first.count("z")) == (2, 0)


async def test_a_write_is_waited_for_even_if_its_object_came_and_went() -> None:
    known: ObjectCache[ConfigMap] = ObjectCache()
    known.put(config("a", 1))
    waiting = asyncio.ensure_future(known.written(config("b", 3)))
    await FakeClock().advance(0)
    known.put(config("a", 2))
    await FakeClock().advance(0)
    assert not waiting.done()
    known.remove(config("b", 4))
    await waiting
    await known.written(config("b", 3))


async def test_a_deletion_is_waited_for() -> None:
    known: ObjectCache[ConfigMap] = ObjectCache()
    known.put(config("a", 1))
    waiting = asyncio.ensure_future(known.until(Key("default", "a"), lambda now: now is None))
    await FakeClock().advance(0)
    known.put(config("a", 2))
    await FakeClock().advance(0)
    assert not waiting.done()
    known.remove(config("a", 3))
    await waiting


async def test_a_new_list_ends_all_waiting() -> None:
    known: ObjectCache[ConfigMap] = ObjectCache()
    waiting = asyncio.ensure_future(known.written(config("b", 9)))
    await FakeClock().advance(0)
    [*known.replace([])]
    await waiting


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running() as server:
        yield server


async def test_a_kind_is_followed_once_for_all_who_ask(server: LocalServer) -> None:
    await server.post(MAPS, {"metadata": {"name": "a"}})
    shared = SharedInformers(server.client, server.clock)
    known = shared.of(RESOURCE)
    assert shared.of(RESOURCE) is known
    server.start(shared.run())
    await shared.synced()
    assert known.get("a", "default") is not None
    made = await server.client.create(
        RESOURCE, replace(config("b", 0), metadata=ObjectMeta(name="b", namespace="default"))
    )
    await known.written(made)
    assert known.get("b", "default") is not None


async def test_who_owns_fields_is_not_kept_and_not_lost_either(server: LocalServer) -> None:
    await server.post(
        f"{MAPS}?fieldManager=somebody", {"metadata": {"name": "a"}, "data": {"x": "1"}}
    )
    shared = SharedInformers(server.client, server.clock)
    known = shared.of(RESOURCE)
    server.start(shared.run())
    await shared.synced()
    found = known.get("a", "default")
    assert found is not None
    assert not found.metadata.managedFields
    await server.client.update(RESOURCE, replace(found, data={"x": "1", "y": "2"}))
    kept = (await server.get(f"{MAPS}/a"))["metadata"]["managedFields"]
    assert {each["manager"] for each in kept} == {"somebody", "kedge-test"}


def test_a_follower_that_fails_keeps_no_other_from_being_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    known: ObjectCache[ConfigMap] = ObjectCache()
    told: list[str] = []

    def fail(before: ConfigMap | None, now: ConfigMap | None) -> None:
        raise OverflowError("date value out of range")

    known.follow(fail)
    known.follow(lambda before, now: told.append(now.metadata.name if now else ""))
    [*known.replace([config("a", 1)])]
    known.put(config("b", 2))
    assert told == ["a", "b"]
    assert caplog.text.count("change skipped") == 2
