"""Custom kinds come and go: follows the definitions and serves what they define."""

import asyncio
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from kedge.api.apiextensions_v1.custom_resource_definition import CLEANUP, RESOURCE
from kedge.api.apiextensions_v1.definition import (
    CustomResourceDefinition,
    is_established,
    storage_version,
)
from kedge.api.options import DeleteOptions
from kedge.api.resource import Resource
from kedge.apiserver.api import Api
from kedge.apiserver.authn import ADMIN
from kedge.apiserver.crd.naming import accepted_names
from kedge.apiserver.crd.resources import resources_of
from kedge.apiserver.message import HttpRequest
from kedge.apiserver.request import Request, stored
from kedge.apiserver.verbs import write
from kedge.apiserver.verbs.delete import delete_object
from kedge.apiserver.verbs.patches import Wanted
from kedge.apiserver.watchcache import Change, Item
from kedge.machinery.errors import StatusError


class Registrar:
    """Keeps the catalog in step with the CustomResourceDefinitions."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._cache = api.cache.of(RESOURCE)
        self._served: dict[str, list[Resource[Any]]] = {}
        self._pending: asyncio.Queue[str] = asyncio.Queue()

    async def load(self) -> None:
        """Serve what was established before the server stopped."""
        self._cache.listeners.add(self._note)
        for item in list(self._cache.values()):
            definition = self._definition(item)
            if is_established(definition):
                await self._serve(definition)
            self._pending.put_nowait(item.key)

    async def run(self) -> None:
        """Follow the definitions, for ever."""
        while True:
            key = await self._pending.get()
            item = self._cache.get(key)
            if item is None:
                self._withdraw(key.rpartition("/")[2])
            else:
                await self._settle(self._definition(item))

    def _note(self, change: Change | None) -> None:
        if change is not None:
            self._pending.put_nowait(change.item.key)

    def _definition(self, item: Item) -> CustomResourceDefinition:
        return RESOURCE.decode(item.body)

    async def _settle(self, definition: CustomResourceDefinition) -> None:
        if definition.metadata.deletionTimestamp:
            if CLEANUP in definition.metadata.finalizers:
                await self._empty(definition)
            return
        definition = await self._judge(definition)
        if is_established(definition):
            await self._serve(definition)

    async def _judge(self, definition: CustomResourceDefinition) -> CustomResourceDefinition:
        """Decide on the names, and say so in the status."""
        others = [
            self._definition(item)
            for item in self._cache.values()
            if not item.key.endswith(f"/{definition.metadata.name}")
        ]
        names, conditions = accepted_names(definition, others)
        now = self._api.timestamp()
        timed = [replace(c, lastTransitionTime=c.lastTransitionTime or now) for c in conditions]
        versions = list(
            dict.fromkeys([*definition.status.storedVersions, storage_version(definition)])
        )
        status = replace(
            definition.status, acceptedNames=names, conditions=timed, storedVersions=versions
        )
        if status == definition.status:
            return definition
        judged = replace(definition, status=status)
        written = RESOURCE.to_document(judged)["status"]
        try:
            await self._modify(
                definition.metadata.name, lambda live: live | {"status": written}, write.STATUS
            )
        except StatusError as error:
            if error.code != 404:
                raise
        return judged

    async def _serve(self, definition: CustomResourceDefinition) -> None:
        resources = resources_of(definition)
        name = definition.metadata.name
        for old in self._served.get(name, ()):
            if not any(_same(old, new) for new in resources):
                self._api.catalog.remove(old)
        for resource in resources:
            cache = await self._api.cache.add(stored(resource))
            cache.adopt(stored(resource))
            self._api.catalog.add(resource)
        self._served[name] = resources

    def _withdraw(self, name: str) -> None:
        for resource in self._served.pop(name, ()):
            self._api.catalog.remove(resource)
            self._api.cache.remove(stored(resource))

    async def _empty(self, definition: CustomResourceDefinition) -> None:
        """Delete every object of a doomed kind, then let the definition go."""
        resources = self._served.get(definition.metadata.name) or []
        if resources:
            await self._delete_objects(resources[0])
            if len(self._api.cache_of(resources[0])):
                # Finalizers hold some of them: look again when the next one has gone.
                self._api.cache_of(resources[0]).listeners.add(self._again(definition))
                return
        await self._modify(definition.metadata.name, _without_cleanup, write.MAIN)

    def _again(self, definition: CustomResourceDefinition) -> Any:
        cache = self._api.cache_of(self._served[definition.metadata.name][0])
        key = RESOURCE.key("", definition.metadata.name)

        def look(change: Change | None) -> None:
            if change is None or not len(cache):
                cache.listeners.discard(look)
                self._pending.put_nowait(key)

        return look

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

    async def _modify(self, name: str, change: Any, part: write.Part) -> None:
        request = Request(_http(), ADMIN, RESOURCE, "patch", "", name, part.subresource)
        await write.modify(
            self._api, request, lambda live: Wanted(change(live)), part, "UpdateOptions"
        )


def _without_cleanup(live: dict[str, Any]) -> dict[str, Any]:
    meta = live["metadata"]
    left = [name for name in meta.get("finalizers", ()) if name != CLEANUP]
    return live | {"metadata": {**meta, "finalizers": left}}


def _same(one: Resource[Any], other: Resource[Any]) -> bool:
    return (one.version, one.plural) == (other.version, other.plural)


def _http() -> HttpRequest:
    return HttpRequest("POST", "/", headers={"user-agent": "kedge-apiextensions"})
