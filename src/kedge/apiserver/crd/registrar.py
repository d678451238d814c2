"""Custom kinds come and go: follows the definitions and serves what they define."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from kedge.api.apiextensions_v1.custom_resource_definition import CLEANUP, RESOURCE
from kedge.api.apiextensions_v1.definition import (
    CustomResourceDefinition,
    is_established,
    storage_version,
)
from kedge.api.options import DeleteOptions
from kedge.api.resource import Resource
from kedge.apiserver import managed
from kedge.apiserver.api import Api
from kedge.apiserver.authentication.authenticator import ADMIN
from kedge.apiserver.crd.naming import accepted_names
from kedge.apiserver.crd.resources import resources_of
from kedge.apiserver.crd.rule_cache import RuleCache
from kedge.apiserver.crd.view_cache import ViewCache
from kedge.apiserver.crd.webhook_converter import VersionForm, WebhookConverter
from kedge.apiserver.pending_keys import PendingKeys
from kedge.apiserver.request import Request
from kedge.apiserver.verbs import decode, write
from kedge.apiserver.verbs.delete import delete_object
from kedge.apiserver.verbs.patches import DesiredDocument
from kedge.apiserver.watchcache import Change, Item, ResourceCache
from kedge.machinery.errors import StatusError, forbidden
from kedge.storage.store import StoreEntry
from kedge.web.message import HttpRequest

log = logging.getLogger(__name__)

SCHEMA_COST: Final = 2
"""How many times longer than other work a byte of a definition takes when its schema is made: one
of 30 KB can have thousands of fields without content, and takes a tenth of a second."""

FIRST_DELAY_SECONDS: Final = 1.0
LONGEST_DELAY_SECONDS: Final = 60.0


class Registrar:
    """Keeps the catalog in step with the CustomResourceDefinitions."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._cache = api.cache.of(RESOURCE)
        self._served: dict[str, list[Resource[Any]]] = {}
        self._bases: dict[str, object] = {}
        """The uid, generation and names from which the served resources were built."""
        self._homes: dict[str, Resource[Any]] = {}
        """The resource as which the objects of a definition are stored."""
        self._names: dict[str, tuple[int, CustomResourceDefinition]] = {}
        """Each definition without its versions, and the revision that it was read at. The names of
        a new definition are compared with all others, which may have a megabyte of schemas each."""
        self._pending = PendingKeys()
        """Keys of definitions to look at."""
        self._delays: dict[str, float] = {}
        """By key: seconds until a definition that could not be settled is looked at again."""
        self._retrying: set[str] = set()
        """Keys of definitions whose delay has not passed."""
        self._is_looking = False
        self._settled = asyncio.Event()
        self._rules = RuleCache()
        self._views = ViewCache()

    async def load(self) -> None:
        """Serve what was established before the server stopped."""
        self._cache.listeners.add(self._note)
        for item in list(self._cache.values()):
            definition = await self._definition(item)
            if is_established(definition):
                await self._serve(definition, len(item.body))
            self._pending.add(item.key)

    async def run(self) -> None:
        """Follow the definitions, for ever."""
        async with asyncio.TaskGroup() as retries:
            while True:
                key = await self._pending.next()
                self._is_looking = True
                try:
                    await self._look_at(key)
                except Exception:
                    # A webhook or policy may have refused the status, or the disk may be full.
                    log.exception("custom resource definition not settled key=%s", key)
                    if key not in self._retrying:
                        retries.create_task(self._look_again(key))
                else:
                    self._delays.pop(key, None)
                self._is_looking = False
                if self._pending.is_empty:
                    self._settled.set()

    async def settled(self) -> None:
        """Return when the catalog has all that the caches define."""
        while self._is_looking or not self._pending.is_empty:
            self._settled.clear()
            await self._settled.wait()

    async def _look_again(self, key: str) -> None:
        """Look at a definition once more after a while, a longer one each time."""
        seconds = self._delays.get(key, FIRST_DELAY_SECONDS)
        self._delays[key] = min(2 * seconds, LONGEST_DELAY_SECONDS)
        self._retrying.add(key)
        await self._api.clock.sleep(seconds)
        self._retrying.discard(key)
        self._pending.add(key)

    async def _look_at(self, key: str) -> None:
        item = self._cache.get(key)
        if item is not None:
            await self._settle(await self._definition(item), len(item.body))
            return
        self._names.pop(key, None)
        self._withdraw(key.rpartition("/")[2])
        # The names that went with it may be what another definition waits for.
        for other in self._cache.values():
            self._pending.add(other.key)

    def _note(self, change: Change | None) -> None:
        if change is not None:
            self._pending.add(change.item.key)

    async def _definition(self, item: Item) -> CustomResourceDefinition:
        definition = await self._api.long_work.run(len(item.body), RESOURCE.decode, item.body)
        bare = replace(definition, spec=replace(definition.spec, versions=()))
        self._names[item.key] = item.revision, bare
        return definition

    async def _names_of_others(self, own: str) -> list[CustomResourceDefinition]:
        for item in tuple(self._cache.values()):
            if item.revision != self._names.get(item.key, (0, None))[0]:
                await self._definition(item)
        return [
            bare
            for key, (_, bare) in self._names.items()
            if not key.endswith(f"/{own}") and self._cache.get(key) is not None
        ]

    async def _settle(self, definition: CustomResourceDefinition, size: int) -> None:
        if definition.metadata.deletionTimestamp:
            if CLEANUP in definition.metadata.finalizers:
                await self._empty(definition, size)
            return
        judged = await self._judge(definition, size)
        # The kind is served before its definition says so: clients that have waited for the
        # condition Established create objects at once.
        if is_established(judged):
            await self._serve(judged, size)
        try:
            if judged.status != definition.status:
                await self._write_status(judged)
        except BaseException:
            if not is_established(definition):
                self._withdraw(judged.metadata.name)
            raise

    async def _judge(
        self, definition: CustomResourceDefinition, size: int
    ) -> CustomResourceDefinition:
        """Decide on the names, and return the definition with a status that says so; `size` is
        what it has in bytes."""
        others = await self._names_of_others(definition.metadata.name)
        names, conditions = await self._api.long_work.run(size, accepted_names, definition, others)
        now = self._api.timestamp()
        timed = [replace(c, lastTransitionTime=c.lastTransitionTime or now) for c in conditions]
        versions = list(
            dict.fromkeys([*definition.status.storedVersions, storage_version(definition)])
        )
        status = replace(
            definition.status, acceptedNames=names, conditions=timed, storedVersions=versions
        )
        return replace(definition, status=status)

    async def _write_status(self, judged: CustomResourceDefinition) -> None:
        written = RESOURCE.to_document(judged)["status"]
        try:
            await self._modify(
                judged.metadata.name, lambda live: live | {"status": written}, write.STATUS
            )
        except StatusError as error:
            if error.code != 404:
                raise

    async def _serve(self, definition: CustomResourceDefinition, size: int) -> None:
        meta = definition.metadata
        basis = meta.uid, meta.generation, definition.status.acceptedNames
        if self._bases.get(meta.name) == basis:
            return
        weight = size * SCHEMA_COST
        resources = await self._api.long_work.run(
            weight, resources_of, definition, self._rules, self._converter
        )
        name = meta.name
        for old in self._served.get(name, ()):
            if not any(_same(old, new) for new in resources):
                self._api.catalog.remove(old)
        home = await self._api.long_work.run(weight, self._home, definition, resources)
        cache = await self._api.cache.add(home)
        entries: Sequence[StoreEntry] = ()
        if home.conversion is not None:
            entries = (await self._api.store.list(home.prefix)).entries
        await cache.adopt(home, self._api.clock, entries)
        for resource in resources:
            self._api.catalog.add(resource)
        self._served[name], self._bases[name] = resources, basis
        self._homes[name] = home
        _forget_schemas()

    def _withdraw(self, name: str) -> None:
        _forget_schemas()
        self._bases.pop(name, None)
        for resource in self._served.pop(name, ()):
            self._api.catalog.remove(resource)
        home = self._homes.pop(name, None)
        if home is not None:
            self._api.cache.remove(home)

    async def _empty(self, definition: CustomResourceDefinition, size: int) -> None:
        """Delete every object of a doomed kind, then let the definition go."""
        name = definition.metadata.name
        weight = size * SCHEMA_COST
        made = await self._api.long_work.run(weight, self._home, definition, ())
        # Deletion works without a webhook: it may be gone already, with the rest of an operator.
        home = replace(made, conversion=None)
        self._homes.setdefault(name, home)
        cache = await self._api.cache.add(home)
        for resource in self._served.get(name, ()):
            self._api.catalog.add(_without_create(resource))
        await self._delete_objects(home)
        if len(cache):
            # Finalizers hold some of them: look again when one has gone.
            cache.listeners.add(SecondLook(self._pending, RESOURCE.key("", name), cache))
            return
        await self._modify(name, _without_cleanup, UNCHECKED)

    def _converter(
        self, definition: CustomResourceDefinition, forms: Mapping[str, VersionForm]
    ) -> WebhookConverter:
        return WebhookConverter(
            definition,
            forms,
            caller=self._api.caller,
            long_work=self._api.long_work,
            cache=self._views,
        )

    def _home(
        self, definition: CustomResourceDefinition, served: Sequence[Resource[Any]]
    ) -> Resource[Any]:
        """Return the resource in the storage version, even if that version is not served."""
        home = self._stored(definition, served)
        if home.read is not None:
            # Stored objects are converted by it, on the event loop.
            _ = home.schema
        return home

    def _stored(
        self, definition: CustomResourceDefinition, served: Sequence[Resource[Any]]
    ) -> Resource[Any]:
        if served and served[0].version == storage_version(definition):
            return served[0]
        spec = definition.spec
        versions = [replace(v, served=v.served or v.storage) for v in spec.versions]
        definition = replace(definition, spec=replace(spec, versions=versions))
        return resources_of(definition, self._rules, self._converter)[0]

    async def _delete_objects(self, resource: Resource[Any]) -> None:
        items: Iterable[Item] = list(self._api.cache_of(resource).values())
        for item in items:
            namespace = item.key.split("/")[-2] if resource.namespaced else ""
            name = item.key.rpartition("/")[2]
            request = Request(_http(), ADMIN, resource, "delete", namespace, name)
            try:
                await delete_object(self._api, request, DeleteOptions())
            except StatusError as error:
                if error.code != 404:
                    raise

    async def _modify(self, name: str, change: Any, part: write.ObjectPart) -> None:
        request = Request(_http(), ADMIN, RESOURCE, "patch", "", name, part.subresource)
        await write.modify(
            self._api, request, lambda live: DesiredDocument(change(live)), part, "UpdateOptions"
        )


class SecondLook:
    """Has a definition looked at again when an object of it is created or gone."""

    def __init__(self, pending: PendingKeys, key: str, cache: ResourceCache) -> None:
        self._pending = pending
        self._key = key
        self._cache = cache

    def __call__(self, change: Change | None) -> None:
        if change is None or change.type != "MODIFIED":
            self._cache.listeners.discard(self)
            self._pending.add(self._key)


UNCHECKED = replace(write.MAIN, validate=lambda resource, new, old: iter(()))
"""For changes that must not fail because a definition breaks rules that are newer than it."""


def _without_create(resource: Resource[Any]) -> Resource[Any]:
    strategy = replace(resource.strategy, prepare_for_create=_refuse(resource))
    return replace(resource, strategy=strategy)


def _refuse(resource: Resource[Any]) -> Callable[[Any], Any]:
    """No object begins once its kind is doomed."""

    def refuse(obj: Any) -> Any:
        why = "create not allowed while custom resource definition is terminating"
        raise forbidden(resource.group, resource.plural, obj.metadata.name, why)

    return refuse


def _without_cleanup(live: dict[str, Any]) -> dict[str, Any]:
    meta = live["metadata"]
    left = [name for name in meta.get("finalizers", ()) if name != CLEANUP]
    return live | {"metadata": {**meta, "finalizers": left}}


def _same(one: Resource[Any], other: Resource[Any]) -> bool:
    return (one.version, one.plural) == (other.version, other.plural)


def _http() -> HttpRequest:
    return HttpRequest("POST", "/", headers={"user-agent": "kube-apiserver"})


def _forget_schemas() -> None:
    """Drop what is cached by schema: that of a kind that is gone may have megabytes."""
    decode.forget_schemas()
    managed.forget_schemas()
