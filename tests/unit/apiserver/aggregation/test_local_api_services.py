"""APIServices of versions that the server serves itself."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from kedge.apiserver.aggregation.local_api_services import (
    ALWAYS,
    MANAGED,
    ON_START,
    RETRY_SECONDS,
    Correction,
    LocalApiServices,
    correction,
    local_api_service,
    served_versions,
)
from kedge.apiserver.group_priorities import BUILT_IN, CUSTOM
from kedge.storage.store import StoreEntry, StoreUnavailable
from kedge.testing.local_server import LocalServer
from kedge.web.duplex import turn

PATH = "/apis/apiregistration.k8s.io/v1/apiservices"
WANTED = local_api_service("g.example.com", "v1", CUSTOM, ALWAYS)


def live(managed: str | None, **spec: Any) -> dict[str, Any]:
    labels = {} if managed is None else {MANAGED: managed}
    return {"metadata": {"labels": labels}, "spec": WANTED["spec"] | spec}


@pytest.mark.parametrize(
    ("found", "wanted", "outcome"),
    [
        (None, None, Correction.NONE),
        (None, WANTED, Correction.CREATE),
        (live(None), None, Correction.NONE),
        (live(None, versionPriority=1), WANTED, Correction.NONE),
        (live(ALWAYS), WANTED, Correction.NONE),
        (live(ALWAYS, versionPriority=1), WANTED, Correction.UPDATE),
        (live(ON_START, service={}), WANTED, Correction.UPDATE),
        (live(ALWAYS), None, Correction.DELETE),
    ],
)
def test_corrections(found: Any, wanted: Any, outcome: Correction) -> None:
    assert correction(found, wanted) is outcome


def test_versions_of_a_definition() -> None:
    versions = [{"name": "v1", "served": True}, {"name": "v2", "served": False}]
    body = json.dumps({"spec": {"group": "g", "versions": versions}}).encode()
    assert served_versions(body) == {("g", "v1")}


async def until(condition: Callable[[], Any]) -> None:
    for _ in range(1000):
        if condition():
            return
        await turn()
    raise AssertionError("this did not come true")


async def test_built_in_versions_get_objects_and_those_of_others_stay(server: LocalServer) -> None:
    api = server.app.api
    foreign = local_api_service("apps", "v1", CUSTOM, ON_START)
    del foreign["metadata"]["labels"]
    await server.post(PATH, foreign)
    spurious = local_api_service("gone.example.com", "v1", CUSTOM, ON_START)
    await server.post(PATH, spurious)
    registered = asyncio.Event()
    server.start(LocalApiServices(api, server.clock).run(registered.set))
    resource = api.catalog.of_kind("apiregistration.k8s.io/v1", "APIService")
    assert resource is not None
    cache = api.cache.of(resource)
    wanted = {f"{version}.{group}" for group, version in BUILT_IN}
    await until(registered.is_set)
    assert {item.key.rpartition("/")[2] for item in cache.values()} == wanted
    kept = await server.get(f"{PATH}/v1.apps")
    assert kept["spec"]["groupPriorityMinimum"] == CUSTOM.group


async def test_objects_are_written_when_the_store_answers_again(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unavailable(key: str, value: bytes, *, expect: int, ttl: int = 0) -> StoreEntry:
        raise StoreUnavailable("etcd does not answer")

    with monkeypatch.context() as outage:
        outage.setattr(server.store, "put", unavailable)
        registered = asyncio.Event()
        server.start(LocalApiServices(server.app.api, server.clock).run(registered.set))
        for _ in range(50):
            await turn()
    assert not registered.is_set()
    await server.clock.advance(RETRY_SECONDS)
    await until(registered.is_set)
