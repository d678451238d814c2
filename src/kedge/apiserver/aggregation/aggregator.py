"""Aggregator: follows APIServices, checks the servers behind them and forwards requests to them."""

import asyncio
import logging
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote

from kedge.api.core_v1 import service
from kedge.api.core_v1.service_types import Service
from kedge.api.discovery_v1 import endpoint_slice
from kedge.api.discovery_v1.endpoint_slice import EndpointSlice
from kedge.apiserver.aggregation import resource_list
from kedge.apiserver.aggregation.availability import (
    LOCAL,
    PASSED,
    Availability,
    failed_check,
    service_problem,
    with_condition,
)
from kedge.apiserver.aggregation.extension_servers import ExtensionServers
from kedge.apiserver.aggregation.forward import forward
from kedge.apiserver.aggregation.probe import ApiServiceProbe, CheckFailed
from kedge.apiserver.aggregation.remote_documents import RemoteDocument, RemoteDocuments
from kedge.apiserver.aggregation.remote_version import RemoteVersion, remote_version
from kedge.apiserver.api import Api
from kedge.apiserver.authentication.authenticator import ADMIN
from kedge.apiserver.context import Answer, RequestContext
from kedge.apiserver.inflight import too_many
from kedge.apiserver.request import Request
from kedge.apiserver.verbs import write
from kedge.apiserver.verbs.patches import DesiredDocument
from kedge.apiserver.watchcache import Change, Item, Selection
from kedge.client.workqueue import Backoff, WorkQueue
from kedge.machinery.errors import StatusError, method_not_allowed
from kedge.machinery.selectors import labels_from_map, parse_fields
from kedge.web.message import HttpRequest, Response

log = logging.getLogger(__name__)

CHECK_SECONDS: Final = 30.0
"""How often a remote version is checked while nothing changes."""
WORKERS: Final = 16
"""Versions that are checked at once. A server that does not answer holds one for 6 seconds."""
WAITING: Final = 100
"""Requests to one version that wait for the head of the response; further ones get 429."""
_BACKOFF: Final = Backoff(first=0.05, most=CHECK_SECONDS)
_OF_SERVICE: Final = "kubernetes.io/service-name"


class Aggregator:
    """The remote versions of this server."""

    def __init__(self, api: Api, servers: ExtensionServers) -> None:
        self.documents = RemoteDocuments()
        """The discovery documents of remote versions."""
        self._api = api
        self._servers = servers
        self._probe = ApiServiceProbe(servers)
        resource = api.catalog.of_kind("apiregistration.k8s.io/v1", "APIService")
        assert resource is not None
        self._resource = resource
        self._cache = api.cache.of(resource)
        self._services = api.cache.of(service.RESOURCE)
        self._slices = api.cache.of(endpoint_slice.RESOURCE)
        self._queue: WorkQueue[str] = WorkQueue(api.clock, _BACKOFF)
        """Names of APIServices."""
        self._remotes: dict[tuple[str, str], RemoteVersion] = {}
        self._by_name: dict[str, RemoteVersion] = {}
        self._waiting: dict[str, int] = {}
        for item in self._cache.values():
            self._take(_name(item), item)
        self._cache.listeners.add(self._api_service_changed)
        self._services.listeners.add(self._service_changed)
        self._slices.listeners.add(self._slice_changed)

    # Requests.

    def answer(self, context: RequestContext) -> Answer | None:
        """Return the answer of an extension server; None if this server answers itself."""
        if not self._remotes:
            return None
        remote = self._remote(context)
        return None if remote is None else self._forward(remote, context)

    def _remote(self, context: RequestContext) -> RemoteVersion | None:
        target, http = context.target, context.http
        if target is not None:
            return self._remotes.get((target.group, target.version))
        # Only these paths: the authorizer took any other for one without a resource.
        match http.path.removesuffix("/").split("/"):
            case ["", "apis", group, version]:
                remote = self._remotes.get((unquote(group), unquote(version)))
            case ["", "openapi", "v3", "apis", group, version]:
                remote = self._remotes.get((unquote(group), unquote(version)))
            case _:
                return None
        if remote is not None and http.method not in ("GET", "HEAD"):
            raise method_not_allowed()
        return remote

    async def _forward(self, remote: RemoteVersion, context: RequestContext) -> Response:
        # A slow server must not gather requests, which hold memory and connections.
        waiting = self._waiting.get(remote.name, 0)
        if waiting >= WAITING:
            raise too_many()
        self._waiting[remote.name] = waiting + 1
        try:
            return await forward(self._servers, remote, context.http, context.user)
        finally:
            self._waiting[remote.name] -= 1
            if not self._waiting[remote.name]:
                del self._waiting[remote.name]

    # Changes.

    def _api_service_changed(self, change: Change | None) -> None:
        if change is not None:
            name = _name(change.item)
            self._take(name, None if change.type == "DELETED" else change.item)
            if _is_redefined(change):
                self._queue.add(name)

    def _service_changed(self, change: Change | None) -> None:
        if change is not None and self._by_name:
            *_, namespace, name = change.item.key.split("/")
            self._check_users_of(namespace, name)

    def _slice_changed(self, change: Change | None) -> None:
        if change is not None and self._by_name:
            namespace = change.item.key.split("/")[-2]
            self._check_users_of(namespace, change.item.labels.get(_OF_SERVICE, ""))

    def _check_users_of(self, namespace: str, name: str) -> None:
        for remote in self._by_name.values():
            if (remote.namespace, remote.service) == (namespace, name):
                self._queue.add(remote.name)

    def _take(self, name: str, item: Item | None) -> None:
        """Forward requests from now on as the APIService says."""
        old = self._by_name.pop(name, None)
        new = remote_version(item.document()) if item is not None else None
        if old is not None:
            del self._remotes[old.group, old.version]
        if new is not None:
            self._by_name[name] = new
            self._remotes[new.group, new.version] = new
            known = self.documents.get(new.group, new.version)
            kept = known if known is not None and new.is_available else RemoteDocument(new.priority)
            self.documents.put(new.group, new.version, _with_priority(kept, new))
        if old is not None and (old.group, old.version) not in self._remotes:
            self.documents.remove(old.group, old.version)

    # Checks.

    async def run(self) -> None:
        """Check the versions when something changes, and now and then; until cancelled."""
        for item in self._cache.values():
            self._queue.add(_name(item))
        async with asyncio.TaskGroup() as tasks:
            for _ in range(WORKERS):
                tasks.create_task(self._work())

    async def _work(self) -> None:
        while True:
            name = await self._queue.get()
            try:
                is_settled = await self._check(name)
            except Exception as error:
                is_settled = False
                log.warning("APIService not checked name=%s error=%s", name, error)
            finally:
                self._queue.done(name)
            if not is_settled:
                self._queue.retry(name)
                continue
            self._queue.forget(name)
            if name in self._by_name:
                self._queue.add_later(name, CHECK_SECONDS)

    async def _check(self, name: str) -> bool:
        """Bring the condition of an APIService up to date; returns whether it need not be checked
        again soon."""
        item = self._cache.get(self._resource.key("", name))
        if item is None:
            return True
        remote = self._by_name.get(name)
        if remote is None:
            await self._write(name, LOCAL)
            return True
        problem = service_problem(remote, *self._backends(remote))
        if problem is not None:
            await self._write(name, problem)
            return True
        try:
            answer = await self._probe.check(remote)
        except CheckFailed as error:
            await self._write(name, failed_check(str(error)))
            return False
        resources = await self._resources(remote, answer.body)
        # Discovery is complete before the version counts as available.
        if name in self._by_name:
            rank = self._by_name[name].priority
            document = RemoteDocument(
                rank, resources or [], resources is not None, answer.openapi_hash
            )
            self.documents.put(remote.group, remote.version, document)
        await self._write(name, PASSED)
        return resources is not None

    async def _resources(self, remote: RemoteVersion, body: bytes) -> list[dict[str, Any]] | None:
        try:
            return await self._api.long_work.run(len(body), resource_list.parse, body)
        except ValueError as error:
            log.warning("resources of an APIService unknown name=%s error=%s", remote.name, error)
            return None

    def _backends(self, remote: RemoteVersion) -> tuple[Service | None, list[EndpointSlice]]:
        found = self._services.get(service.RESOURCE.key(remote.namespace, remote.service))
        if found is None:
            return None, []
        return service.RESOURCE.decode(found.body), [*self._slices_of(remote)]

    def _slices_of(self, remote: RemoteVersion) -> Iterator[EndpointSlice]:
        labels = labels_from_map({_OF_SERVICE: remote.service})
        chosen = Selection(endpoint_slice.RESOURCE, remote.namespace, labels, parse_fields(""))
        for item in self._slices.select(chosen):
            yield endpoint_slice.RESOURCE.decode(item.body)

    async def _write(self, name: str, availability: Availability) -> None:
        now = self._api.timestamp()

        def changed(live: dict[str, Any]) -> DesiredDocument:
            return DesiredDocument(with_condition(live, availability, now))

        item = self._cache.get(self._resource.key("", name))
        if (
            item is None
            or with_condition(document := item.document(), availability, now) == document
        ):
            return
        request = Request(_http(), ADMIN, self._resource, "patch", "", name, "status")
        try:
            await write.modify(self._api, request, changed, write.STATUS, "UpdateOptions")
        except StatusError as error:
            if error.code != 404:
                raise


def _name(item: Item) -> str:
    return item.key.rpartition("/")[2]


def _is_redefined(change: Change) -> bool:
    """Whether more than metadata and status changed: the check itself writes the status."""
    if change.previous is None or change.type == "DELETED":
        return True
    return bool(change.previous.document().get("spec") != change.item.document().get("spec"))


def _with_priority(document: RemoteDocument, remote: RemoteVersion) -> RemoteDocument:
    return RemoteDocument(
        remote.priority, document.resources, document.is_current, document.openapi_hash
    )


def _http() -> HttpRequest:
    return HttpRequest("POST", "/", headers={"user-agent": "kube-apiserver"})
