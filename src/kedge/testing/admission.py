"""Harness for admission plugins: alone in a server's chain, or called for one attempt."""

from collections.abc import Iterable
from typing import Any

from kedge.api.model import Object
from kedge.api.resource import Resource
from kedge.apiserver.admission.chain import AdmissionPlugin, Attempt, Chain, Operation
from kedge.apiserver.api import to_stored_bytes
from kedge.apiserver.request import Request, User
from kedge.apiserver.watchcache import WatchCache
from kedge.storage.memory import MemoryStore
from kedge.testing.clock import FakeClock
from kedge.testing.local_server import LocalServer
from kedge.web.message import HttpRequest

SOMEBODY = User("somebody", ("system:authenticated",))
Stored = tuple[Resource[Any], dict[str, Any]]


def admit_only_with(server: LocalServer, *plugins: AdmissionPlugin) -> None:
    """Let a server have these plugins and no others, but for what is a part of some kind."""
    api = server.app.api
    own = [plugin for plugin in api.admission.plugins if plugin.name == "ServiceAddresses"]
    api.admission = Chain([*own, *plugins])


def attempt(
    resource: Resource[Any],
    operation: Operation,
    obj: Object | None,
    old: Object | None = None,
    *,
    user: User = SOMEBODY,
    subresource: str = "",
    query: str = "",
) -> Attempt:
    """A write of an object as a request would make it."""
    meta = (obj or old or Object()).metadata
    verb = operation.lower()
    http = HttpRequest("POST", "/", query)
    place = meta.namespace, meta.name, subresource
    return Attempt(Request(http, user, resource, verb, *place), operation, obj, old)


async def cache_with(
    resources: Iterable[Resource[Any]], objects: Iterable[Stored] = ()
) -> WatchCache:
    """A cache on a store that holds these objects."""
    store = MemoryStore(FakeClock())
    for resource, document in objects:
        await put(store, resource, document)
    cache = WatchCache(store)
    await cache.load(resources)
    return cache


async def put(store: MemoryStore, resource: Resource[Any], document: dict[str, Any]) -> None:
    """Store an object that is not there yet."""
    meta = document["metadata"]
    key = resource.key(meta.get("namespace", ""), meta["name"])
    await store.put(key, to_stored_bytes(resource, document), expect=0)
