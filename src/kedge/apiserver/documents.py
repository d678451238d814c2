"""Discovery and OpenAPI as bytes with ETags, made again only when the catalog has changed."""

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Callable, Collection
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from kedge.api import openapi, openapi_protobuf
from kedge.api.catalog import Catalog
from kedge.apiserver import discovery
from kedge.apiserver.aggregation.remote_documents import RemoteDocuments
from kedge.apiserver.long_work import LONG, LongWork
from kedge.apiserver.media import DISCOVERY, wants_aggregated_discovery
from kedge.machinery.clock import Clock
from kedge.web.http_date import http_date
from kedge.web.message import JSON, HttpRequest, Response


class DiscoveryPage:
    """One encoded document with its ETag."""

    __slots__ = ("body", "etag")

    def __init__(self, document: Any) -> None:
        self.body = document if isinstance(document, bytes) else msgspec.json.encode(document)
        self.etag = hashlib.sha256(self.body).hexdigest()[:32].upper()


class KeptPage(NamedTuple):
    """A page that is kept for further requests."""

    page: DiscoveryPage
    described: object
    """The state of catalog and remote versions that the page describes."""
    state: Callable[[], object]
    """Returns the same of now."""

    @property
    def is_current(self) -> bool:
        return self.described == self.state()


class Documents:
    """The discovery and OpenAPI documents of a server."""

    def __init__(
        self,
        catalog: Catalog,
        address: Callable[[], str],
        clock: Clock,
        long_work: LongWork,
        remotes: RemoteDocuments | None = None,
    ) -> None:
        """`remotes` are the versions of extension servers; None if there can be none."""
        self._catalog = catalog
        self._remotes = remotes or RemoteDocuments()
        self._long_work = long_work
        self._making = asyncio.Lock()
        self._clock = clock
        self._address = address
        self._pages: dict[str, KeptPage] = {}
        self._cleaned: object = None
        """The state of catalog and remote versions when outdated pages were last dropped."""
        self._salt = secrets.token_hex(8)

    def answer(self, request: HttpRequest) -> Response | Awaitable[Response] | None:
        """Return the response to a discovery or OpenAPI path; None for any other path.

        OpenAPI documents grow with the schemas of custom kinds, to megabytes each, so they are made
        beside the event loop; everything else is small.
        """
        segments = request.path.strip("/").split("/")
        match segments:
            case ["api"]:
                return self._root(request, discovery.aggregated_core, self._versions)
            case ["apis"]:
                return self._root(request, self._aggregated, self._groups)
            case ["api", version]:
                return self._legacy(
                    request, lambda all_: discovery.resource_list(all_, "", version)
                )
            case ["apis", group]:
                return self._legacy(request, lambda all_: self._group(all_, group))
            case ["apis", group, version]:
                make = discovery.resource_list
                return self._legacy(request, lambda all_: make(all_, group, version))
            case ["openapi", "v2"]:
                return self._openapi_v2(request)
            case ["openapi", "v3"]:
                return self._serve(request, self._page("v3", self._openapi_index))
            case ["openapi", "v3", *rest]:
                return self._openapi(request, "/".join(rest))
            case _:
                return None

    @property
    def kept(self) -> Collection[str]:
        """The names of the pages that are kept."""
        return self._pages.keys()

    def _versions(self, resources: Any) -> Any:
        return discovery.api_versions(self._address())

    def _aggregated(self, resources: Any) -> Any:
        return self._remotes.merged_aggregated(discovery.aggregated(resources))

    def _groups(self, resources: Any) -> Any:
        return self._remotes.merged_groups(discovery.group_list(resources))

    def _group(self, resources: Any, name: str) -> Any:
        return self._remotes.merged_group(name, discovery.group(resources, name))

    def _root(self, request: HttpRequest, aggregated: Any, legacy: Any) -> Response | None:
        path = request.path.strip("/")
        if wants_aggregated_discovery(request.headers.get("accept", "")):
            page = self._page(f"{path}:aggregated", aggregated)
            return self._serve(request, page, DISCOVERY)
        return self._serve(request, self._page(path, legacy))

    def _legacy(self, request: HttpRequest, make: Any) -> Response | None:
        return self._serve(request, self._page(request.path.strip("/"), make), etag=False)

    async def _openapi_v2(self, request: HttpRequest) -> Response:
        if openapi_protobuf.MEDIA_TYPE not in request.headers.get("accept", ""):
            page = await self._long_page("v2", self._v2_document, self._changes)
            return self._present(request, page)
        page = await self._long_page(
            "v2:protobuf",
            lambda all_: openapi_protobuf.encode(self._v2_document(all_)),
            self._changes,
        )
        return self._present(request, page, openapi_protobuf.CONTENT_TYPE)

    def _v2_document(self, resources: Any) -> Any:
        return openapi.v2_document(resources, upstream_only=self._catalog.upstream_only)

    def _openapi_index(self, resources: Any) -> Any:
        addresses = {
            path: f"/openapi/v3/{path}?hash={self._hash(path, group, version)}"
            for path, (group, version) in openapi.v3_paths(resources).items()
        }
        own = {"paths": {path: {"serverRelativeURL": url} for path, url in addresses.items()}}
        return self._remotes.merged_openapi_index(own)

    def _openapi(self, request: HttpRequest, path: str) -> Response | Awaitable[Response] | None:
        match path.split("/"):
            case ["api", version]:
                group = ""
            case ["apis", group, version]:
                pass
            case _:
                return None
        if not self._catalog.has_version(group, version):
            return None
        wanted = self._hash(path, group, version)
        asked = request.query.get("hash")
        if asked and asked != wanted:
            return Response(301, b"", JSON, [("Location", f"/openapi/v3/{path}?hash={wanted}")])
        return self._openapi_v3(request, path, group, version)

    async def _openapi_v3(
        self, request: HttpRequest, path: str, group: str, version: str
    ) -> Response:
        page = await self._long_page(
            f"v3/{path}",
            lambda all_: openapi.v3_document(
                group, version, all_, upstream_only=self._catalog.upstream_only
            ),
            lambda: self._catalog.stamp(group, version),
        )
        asked = request.query.get("hash")
        caching = "public, immutable" if asked else "no-cache"
        response = self._present(request, page, caching=caching)
        if asked:
            # kubectl caches documents with an expiry date and requests all others again.
            expiry = self._clock.now() + timedelta(days=365)
            response.headers.append(("Expires", http_date(expiry)))
        return response

    def _hash(self, path: str, group: str, version: str) -> str:
        """Return a hash that changes with the document, without making the document."""
        stamp = self._catalog.stamp(group, version)
        return hashlib.sha256(f"{self._salt} {path} {stamp}".encode()).hexdigest()[:32].upper()

    async def _long_page(
        self, name: str, make: Callable[[Any], Any], state: Callable[[], object]
    ) -> DiscoveryPage:
        """Return a page that is made in a thread, once for all clients that ask meanwhile."""
        async with self._making:
            kept = self._pages.get(name)
            if kept is None or not kept.is_current:
                described, resources = state(), list(self._catalog)
                page = await self._long_work.run(LONG, lambda: DiscoveryPage(make(resources)))
                kept = self._keep(name, KeptPage(page, described, state))
            return kept.page

    def _page(self, name: str, make: Callable[[Any], Any]) -> DiscoveryPage | None:
        kept = self._pages.get(name)
        if kept is None or not kept.is_current:
            document = make(list(self._catalog))
            if document is None:
                return None
            page = DiscoveryPage(document)
            kept = self._keep(name, KeptPage(page, self._all_changes(), self._all_changes))
        return kept.page

    def _keep(self, name: str, kept: KeptPage) -> KeptPage:
        """Keep a page, and drop the outdated ones: kinds come and go, and their names may never
        be asked for again."""
        if self._cleaned != self._all_changes():
            self._cleaned = self._all_changes()
            self._pages = {each: page for each, page in self._pages.items() if page.is_current}
        self._pages[name] = kept
        return kept

    def _changes(self) -> object:
        return self._catalog.changes

    def _all_changes(self) -> object:
        return self._catalog.changes, self._remotes.changes

    def _serve(
        self,
        request: HttpRequest,
        page: DiscoveryPage | None,
        content_type: str = JSON,
        *,
        etag: bool = True,
        caching: str = "public",
    ) -> Response | None:
        if page is None:
            return None
        if not etag:
            return Response(200, page.body, content_type)
        return self._present(request, page, content_type, caching=caching)

    def _present(
        self,
        request: HttpRequest,
        page: DiscoveryPage,
        content_type: str = JSON,
        *,
        caching: str = "public",
    ) -> Response:
        tag = f'"{page.etag}"'
        headers = [("ETag", tag), ("Vary", "Accept"), ("Cache-Control", caching)]
        if tag in request.headers.get("if-none-match", ""):
            return Response(304, b"", content_type, headers)
        return Response(200, page.body, content_type, headers)
