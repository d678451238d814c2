"""The APIService objects of versions that this server serves itself, kept as upstream keeps them.

Those of built-in versions are made when the server starts, those of custom resources follow their
definitions.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import Enum
from typing import Any, Final

import msgspec

from kedge.api.apiextensions_v1.custom_resource_definition import RESOURCE as DEFINITIONS
from kedge.api.options import DeleteOptions, Preconditions
from kedge.apiserver import bootstrap
from kedge.apiserver.api import Api
from kedge.apiserver.group_priorities import BUILT_IN, CUSTOM, GroupPriority
from kedge.apiserver.verbs import write
from kedge.apiserver.verbs.delete import delete_object
from kedge.apiserver.verbs.patches import DesiredDocument
from kedge.apiserver.watchcache import Change, Item
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.storage.store import StoreError

log = logging.getLogger(__name__)

MANAGED: Final = "kube-aggregator.kubernetes.io/automanaged"
ON_START: Final = "onstart"
ALWAYS: Final = "true"
RETRY_SECONDS: Final = 5.0

_API_VERSION: Final = "apiregistration.k8s.io/v1"
Json = dict[str, Any]
GroupVersion = tuple[str, str]


class _DefinedVersion(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    served: bool = False


class _DefinedVersions(msgspec.Struct, frozen=True, gc=False):
    group: str = ""
    versions: tuple[_DefinedVersion, ...] = ()


class _Definition(msgspec.Struct, frozen=True, gc=False):
    spec: _DefinedVersions = _DefinedVersions()


def local_api_service(group: str, version: str, priority: GroupPriority, managed: str) -> Json:
    """Return the APIService of a version that this server serves itself."""
    spec = {
        **({"group": group} if group else {}),
        "version": version,
        "groupPriorityMinimum": priority.group,
        "versionPriority": priority.version,
    }
    metadata = {"name": f"{version}.{group}", "labels": {MANAGED: managed}}
    return {"apiVersion": _API_VERSION, "kind": "APIService", "metadata": metadata, "spec": spec}


def served_versions(definition: bytes) -> frozenset[GroupVersion]:
    """Return the versions that a CustomResourceDefinition serves."""
    spec = msgspec.json.decode(definition, type=_Definition).spec
    return frozenset((spec.group, each.name) for each in spec.versions if each.served)


class Correction(Enum):
    """The action that one APIService needs."""

    NONE = "none"
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


def correction(live: Mapping[str, Any] | None, wanted: Mapping[str, Any] | None) -> Correction:
    """Return what makes the live object the wanted one; None is an object that does not exist.
    APIServices without the label are left to their authors."""
    if live is None:
        return Correction.NONE if wanted is None else Correction.CREATE
    if (live["metadata"].get("labels") or {}).get(MANAGED) not in (ON_START, ALWAYS):
        return Correction.NONE
    if wanted is None:
        return Correction.DELETE
    return Correction.NONE if live.get("spec") == wanted["spec"] else Correction.UPDATE


class LocalApiServices:
    """Keeps the APIServices of local versions."""

    def __init__(self, api: Api, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._definitions = api.cache.of(DEFINITIONS)
        self._served: dict[str, frozenset[GroupVersion]] = {}
        """The versions of each definition, by its key."""
        self._changed = asyncio.Event()
        self._stale: set[str] = {item.key for item in self._definitions.values()}
        """Keys of definitions to read again."""
        self._definitions.listeners.add(self._definition_changed)

    def _definition_changed(self, change: Change | None) -> None:
        if change is not None:
            self._stale.add(change.item.key)
            self._changed.set()

    async def run(self, on_registered: Callable[[], None]) -> None:
        """Make what is missing, then follow the definitions; until cancelled. `on_registered` is
        called once nothing is missing."""
        await self._persist(self._begin)
        await self._persist(self._follow)
        on_registered()
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._persist(self._follow)

    async def _persist(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except (StatusError, StoreError, OSError) as error:
                log.warning("APIServices not written, retrying error=%s", error)
                await self._clock.sleep(RETRY_SECONDS)
            else:
                return

    async def _begin(self) -> None:
        has = self._api.catalog.has_version
        wanted = {
            f"{version}.{group}": local_api_service(group, version, priority, ON_START)
            for (group, version), priority in BUILT_IN.items()
            if has(group, version)
        }
        known = self._live(ON_START)
        # Together, so that the store commits them together.
        names = wanted.keys() | known
        await asyncio.gather(*(self._settle(name, wanted.get(name)) for name in names))

    async def _follow(self) -> None:
        while self._stale:
            key = next(iter(self._stale))
            item = self._definitions.get(key)
            if item is None:
                self._served.pop(key, None)
            else:
                self._served[key] = await self._api.long_work.run(
                    len(item.body), served_versions, item.body
                )
            self._stale.discard(key)
        wanted = {
            f"{version}.{group}": local_api_service(group, version, CUSTOM, ALWAYS)
            for group, version in frozenset[GroupVersion]().union(*self._served.values())
        }
        for name in wanted.keys() | self._live(ALWAYS):
            await self._settle(name, wanted.get(name))

    def _live(self, managed: str) -> set[str]:
        """Return the names of the APIServices that are managed in this way."""
        return {
            item.key.rpartition("/")[2]
            for item in self._items()
            if item.labels.get(MANAGED) == managed
        }

    def _items(self) -> Iterable[Item]:
        resource = self._api.catalog.of_kind(_API_VERSION, "APIService")
        assert resource is not None
        return self._api.cache_of(resource).values()

    async def _settle(self, name: str, wanted: Json | None) -> None:
        named = {"metadata": {"name": name}, "apiVersion": _API_VERSION, "kind": "APIService"}
        request = bootstrap.request_for(self._api, wanted or named, "update")
        item = self._api.find(request)
        live = None if item is None else item.document()
        match correction(live, wanted):
            case Correction.CREATE if wanted is not None:
                await bootstrap.ensure_object(self._api, wanted)
            case Correction.UPDATE if wanted is not None:
                spec = wanted["spec"]
                await write.modify(
                    self._api,
                    request,
                    lambda found: DesiredDocument(found | {"spec": spec}),
                    write.MAIN,
                    "UpdateOptions",
                )
            case Correction.DELETE if live is not None:
                uid = Preconditions(uid=live["metadata"]["uid"])
                await delete_object(self._api, request, DeleteOptions(preconditions=uid))
