"""Api: the dependencies of every verb, and the conversion of objects to what the store keeps."""

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kedge.api.catalog import Catalog
from kedge.api.model import LARGEST_OBJECT, Document, ManagedFieldsEntry, Object
from kedge.api.resource import Resource, enc_hook
from kedge.apiserver import managed
from kedge.apiserver.admission.chain import Chain
from kedge.apiserver.agents import AgentLocator
from kedge.apiserver.allocation.service_allocator import ServiceAllocator
from kedge.apiserver.authorization.authorizer import Authorizer
from kedge.apiserver.body import whole_numbers
from kedge.apiserver.long_work import LongWork
from kedge.apiserver.pod_templates import PodTemplates
from kedge.apiserver.request import Request, stored
from kedge.apiserver.watchcache import Item, ResourceCache, WatchCache
from kedge.apiserver.webhooks.caller import Caller
from kedge.apiserver.write_chains import QueuedObject, WriteChains
from kedge.machinery.clock import Clock
from kedge.machinery.durations import format_time
from kedge.machinery.errors import StatusError, internal, not_found, too_large, unknown_resource
from kedge.metrics.reports import UsageReports
from kedge.storage.store import RevisionConflict, Store, StoreEntry
from kedge.web.cluster_network import MACHINE, ClusterNetwork

_MARKS: Final = 1 << 10


class Api:
    """The dependencies of all handlers of one server."""

    def __init__(
        self,
        *,
        store: Store,
        cache: WatchCache,
        catalog: Catalog,
        admission: Chain,
        authorizer: Authorizer,
        allocator: ServiceAllocator,
        caller: Caller,
        metrics: UsageReports,
        clock: Clock,
        random: Random,
        pod_templates: PodTemplates,
        agents: AgentLocator | None = None,
        network: ClusterNetwork = MACHINE,
        work: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
    ) -> None:
        """`work` runs as long as the server. `agents` connects to the agents of nodes; None if this
        server calls no nodes. `metrics` holds what nodes have reported about themselves and their
        pods. `network` leads to pods."""
        self.store = store
        self.cache = cache
        self.catalog = catalog
        self.admission = admission
        self.authorizer = authorizer
        self.allocator = allocator
        self.caller = caller
        self.clock = clock
        self.random = random
        self.pod_templates = pod_templates
        self.metrics = metrics
        self.agents = agents
        self.network = network
        self.work = work
        self.long_work = LongWork(clock)
        self.chains = WriteChains(store, cache, catalog)

    def cache_of(self, resource: Resource[Any]) -> ResourceCache:
        try:
            return self.cache.of(stored(resource))
        except KeyError:
            # A custom resource whose definition was deleted while the request was under way.
            raise unknown_resource() from None

    def find(self, request: Request) -> Item | None:
        """Return the object of a request; None if there is none. Raises StatusError if there is one
        that another program wrote and kedge cannot read: it must not be taken for absent."""
        cache, key = self.cache_of(request.resource), request.key
        item = cache.get(key)
        if item is None and key in cache.unreadable:
            raise internal(str(cache.unreadable[key]))
        return item

    async def own_version(self, resource: Resource[Any], item: Item) -> Item:
        """Return an item in the resource's version, if a webhook converts between versions."""
        if resource.conversion is None:
            return item
        found: list[Item] = await resource.conversion.items([item], resource.api_version)
        return found[0]

    def timestamp(self) -> str:
        return format_time(self.clock.now())

    @asynccontextmanager
    async def locked(self, key: str) -> AsyncIterator[None]:
        """Let one writer at a time change an object: others wait here and do not conflict. The
        writes of earlier ones are over."""
        async with self.chains.turn(key):
            await self.chains.settled(key)
            yield

    async def put(
        self, resource: Resource[Any], document: dict[str, Any], item: Item, weight: int
    ) -> Item:
        """Store a document of the resource's version in place of an item; returns once every reader
        sees it. `weight` is how many bytes the document is made of."""
        value = await self.long_work.run(weight, to_stored_bytes, resource, document)
        return await self.put_bytes(resource, _key_of(resource, document), value, item)

    async def queue_put(
        self,
        resource: Resource[Any],
        document: dict[str, Any],
        item: Item,
        weight: int,
        before: QueuedObject | None,
    ) -> QueuedObject:
        """Queue the same for `WriteChains`, in place of a queued state if there is one; `item` has
        the state that is replaced."""
        value = await self.long_work.run(weight, to_stored_bytes, resource, document)
        _check_size(value, item)
        home = stored(resource)
        return self.chains.submit(
            self.cache_of(resource),
            _key_of(resource, document),
            value,
            before=before or item,
            ttl=home.strategy.ttl,
        )

    async def outcome(self, resource: Resource[Any], queued: QueuedObject) -> Item:
        """Return what a queued write has stored, once every reader sees it."""
        try:
            return await self._seen(stored(resource), await queued.put.entry)
        finally:
            self.chains.end(queued)

    async def put_bytes(
        self, resource: Resource[Any], key: str, value: bytes, item: Item | None
    ) -> Item:
        """Store an encoded object, as a new one or in place of an item; returns once every reader
        sees it. Raises 413."""
        if resource.conversion is not None:
            value = await resource.conversion.stored(value)
        _check_size(value, item)
        home = stored(resource)
        expect = 0 if item is None else item.revision
        entry = await self.store.put(key, value, expect=expect, ttl=home.strategy.ttl)
        return await self._seen(home, entry)

    async def delete(self, resource: Resource[Any], item: Item) -> Item:
        """Remove an object; returns its last state under the revision of the removal."""
        entry = await self.store.delete(item.key, expect=item.revision)
        return await self._seen(stored(resource), entry)

    async def is_stale(self, item: Item) -> bool:
        """Whether an object is stored with another encryption key than a write would use now."""
        # Only a store that encrypts has an answer; the module behind it is seldom loaded.
        is_stale = getattr(self.store, "is_stale", None)
        return is_stale is not None and bool(await is_stale(item.key))

    async def caught_up(self, race: RevisionConflict) -> None:
        """Return once readers see the write that won a race."""
        won = race.current.revision if race.current is not None else 0
        await self.cache.reached(max(won, self.store.revision))

    async def _seen(self, home: Resource[Any], entry: StoreEntry) -> Item:
        await self.cache.reached(entry.revision)
        cache = self.cache_of(home)
        item = cache.get(entry.key)
        return item if item is not None and item.revision == entry.revision else cache.item(entry)


def _key_of(resource: Resource[Any], document: dict[str, Any]) -> str:
    meta = document["metadata"]
    return stored(resource).key(meta.get("namespace", ""), meta["name"])


def _check_size(value: bytes, item: Item | None) -> None:
    most = LARGEST_OBJECT
    if item is not None:
        # A stored object that is larger can be marked for deletion.
        most = max(most, len(item.body) + _MARKS)
    if len(value) > most:
        raise too_large(LARGEST_OBJECT)


def gone(request: Request) -> StatusError:
    """Return the error for an object that does not exist."""
    return not_found(request.resource.group, request.resource.plural, request.name)


def live_document(resource: Resource[Any], item: Item) -> dict[str, Any]:
    """Return a stored object in the resource's own version, with its resourceVersion."""
    document = item.document()
    view = resource.relabelling
    return view.from_stored(document) if view is not None else document


_encoder = msgspec.json.Encoder(enc_hook=enc_hook)


def encoded(obj: Object) -> bytes:
    """Return an object as JSON in the order of its fields, without apiVersion and kind."""
    if isinstance(obj, Document):
        return msgspec.json.encode({"metadata": obj.metadata, **obj.content})
    return _encoder.encode(replace(obj, apiVersion="", kind=""))


def encoded_document(resource: Resource[Any], obj: Object) -> bytes:
    """Return an object as JSON, apiVersion and kind first."""
    kind, api_version = resource.kind.encode(), resource.api_version.encode()
    return b'{"kind":"%b","apiVersion":"%b",%b' % (kind, api_version, encoded(obj)[1:])


def new_stored_bytes(
    resource: Resource[Any], obj: Object, owners: Sequence[ManagedFieldsEntry]
) -> bytes:
    """Return a new object as the store keeps it, with these managedFields; without them if the
    object would be too large."""
    meta = replace(obj.metadata, managedFields=[_ordered(owner) for owner in owners] or ())
    value = _with_integers(resource, encoded_document(resource, replace(obj, metadata=meta)))
    if resource.relabelling is not None:
        return to_stored_bytes(resource, msgspec.json.decode(value))
    if len(value) > LARGEST_OBJECT and owners:
        return new_stored_bytes(resource, obj, ())
    return value


def _with_integers(resource: Resource[Any], value: bytes) -> bytes:
    """Return an encoded custom object with 1 in place of 1.0, as Go writes the number."""
    if not resource.custom or b".0" not in value:
        return value
    return msgspec.json.encode(whole_numbers(value, msgspec.json.decode(value)))


def _ordered(owner: ManagedFieldsEntry) -> ManagedFieldsEntry:
    if isinstance(owner.fieldsV1, msgspec.Raw):
        return owner
    return replace(owner, fieldsV1=managed.in_order(owner.fieldsV1))


def _in_order(entry: dict[str, Any]) -> dict[str, Any]:
    return entry | {"fieldsV1": managed.in_order(entry["fieldsV1"])}


def to_stored_bytes(resource: Resource[Any], document: dict[str, Any]) -> bytes:
    """Return a document as the store keeps it: in the stored version, without resourceVersion, and
    without managedFields if it would be too large. A version that a webhook converts stays."""
    home = resource
    if resource.relabelling is not None:
        document = resource.relabelling.to_stored(document)
        home = resource.relabelling.resource
    metadata = {k: v for k, v in document["metadata"].items() if k != "resourceVersion"}
    if "managedFields" in metadata:
        metadata["managedFields"] = [_in_order(entry) for entry in metadata["managedFields"]]
    rest = {k: v for k, v in document.items() if k not in ("kind", "apiVersion", "metadata")}
    head = {"kind": home.kind, "apiVersion": home.api_version, "metadata": metadata}
    value = _with_integers(resource, msgspec.json.encode(head | rest))
    if len(value) > LARGEST_OBJECT and metadata.pop("managedFields", None):
        value = msgspec.json.encode(head | rest)
    return value
