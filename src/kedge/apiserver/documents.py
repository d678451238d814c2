"""Discovery and OpenAPI as bytes with ETags, made again only when the catalog has changed."""

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Callable
from datetime import timedelta
from email.utils import format_datetime
from typing import Any

import msgspec

from kedge.api import openapi, openapi_protobuf
from kedge.api.catalog import Catalog
from kedge.apiserver import discovery
from kedge.apiserver.long_work import LONG, LongWork
from kedge.apiserver.media import DISCOVERY, wants_aggregated_discovery
from kedge.machinery.clock import Clock
from kedge.web.message import JSON, HttpRequest, Response


class DiscoveryPage:
    """One encoded document with its ETag."""

    __slots__ = ("body", "etag")

    def __init__(self, document: Any) -> None:
        self.body = document if isinstance(document, bytes) else msgspec.json.encode(document)
        self.etag = hashlib.sha256(self.body).hexdigest()[:32].upper()


class Documents:
    """The discovery and OpenAPI documents of a server."""

    def __init__(
        self, catalog: Catalog, address: Callable[[], str], clock: Clock, long_work: LongWork
    ) -> None:
        self._catalog = catalog
        self._long_work = long_work
        self._making = asyncio.Lock()
        self._clock = clock
        self._address = address
        self._pages: dict[str, tuple[int, DiscoveryPage]] = {}
        """The documents, each with the state of the catalog that it describes."""
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
                return self._root(request, discovery.aggregated, discovery.group_list)
            case ["api", version]:
                return self._legacy(
                    request, lambda all_: discovery.resource_list(all_, "", version)
                )
            case ["apis", group]:
                return self._legacy(request, lambda all_: discovery.group(all_, group))
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

    def _versions(self, resources: Any) -> Any:
        return discovery.api_versions(self._address())

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
            page = await self._long_page("v2", self._v2_document, self._catalog.changes)
            return self._present(request, page)
        page = await self._long_page(
            "v2:protobuf",
            lambda all_: openapi_protobuf.encode(self._v2_document(all_)),
            self._catalog.changes,
        )
        return self._present(request, page, openapi_protobuf.CONTENT_TYPE)

    def _v2_document(self, resources: Any) -> Any:
        return openapi.v2_document(resources, upstream_only=self._catalog.upstream_only)

    def _openapi_index(self, resources: Any) -> Any:
        addresses = {
            path: f"/openapi/v3/{path}?hash={self._hash(path, group, version)}"
            for path, (group, version) in openapi.v3_paths(resources).items()
        }
        return {"paths": {path: {"serverRelativeURL": url} for path, url in addresses.items()}}

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
            self._catalog.stamp(group, version),
        )
        asked = request.query.get("hash")
        caching = "public, immutable" if asked else "no-cache"
        response = self._present(request, page, caching=caching)
        if asked:
            # kubectl caches documents with an expiry date and requests all others again.
            expiry = self._clock.now() + timedelta(days=365)
            response.headers.append(("Expires", format_datetime(expiry, usegmt=True)))
        return response

    def _hash(self, path: str, group: str, version: str) -> str:
        """Return a hash that changes with the document, without making the document."""
        stamp = self._catalog.stamp(group, version)
        return hashlib.sha256(f"{self._salt} {path} {stamp}".encode()).hexdigest()[:32].upper()

    async def _long_page(self, name: str, make: Callable[[Any], Any], stamp: int) -> DiscoveryPage:
        """Return a page that is made in a thread, once for all clients that ask meanwhile."""
        async with self._making:
            made = self._pages.get(name)
            if made is None or made[0] != stamp:
                resources = list(self._catalog)
                page = await self._long_work.run(LONG, lambda: DiscoveryPage(make(resources)))
                made = self._pages[name] = (stamp, page)
            return made[1]

    def _page(self, name: str, make: Callable[[Any], Any]) -> DiscoveryPage | None:
        stamp = self._catalog.changes
        made = self._pages.get(name)
        if made is None or made[0] != stamp:
            document = make(list(self._catalog))
            if document is None:
                return None
            made = self._pages[name] = (stamp, DiscoveryPage(document))
        return made[1]

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
