"""Discovery: which resources a server has, custom ones included, as Resources of Documents."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

import msgspec

from kedge.api.model import Document
from kedge.api.presentation import Presentation
from kedge.api.resource import Resource, tolerant
from kedge.client.client import Client, error_of

AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
ROOTS: Final = ("/api", "/apis")


class _Kind(msgspec.Struct, frozen=True):
    kind: str = ""


class _Resource(msgspec.Struct, frozen=True, rename="camel"):
    resource: str
    response_kind: _Kind = _Kind()
    scope: str = "Namespaced"
    verbs: list[str] = []
    singular_resource: str = ""
    short_names: list[str] = []
    categories: list[str] = []


class _DiscoveredVersion(msgspec.Struct, frozen=True):
    version: str
    resources: list[_Resource] = []
    freshness: str = ""


class _Name(msgspec.Struct, frozen=True):
    name: str = ""


class _Group(msgspec.Struct, frozen=True):
    metadata: _Name = _Name()
    versions: list[_DiscoveredVersion] = []


class _Groups(msgspec.Struct, frozen=True):
    items: list[_Group] = []


_groups = tolerant(msgspec.json.Decoder(_Groups))


class ServedResources:
    """The resources of a server; the preferred version of each group comes first."""

    def __init__(self, resources: Iterable[Resource[Document]], stale: Iterable[str] = ()) -> None:
        self.resources = list(resources)
        self.stale = list(stale)
        """API versions whose extension server does not answer, so that their resources are not
        known."""
        self._by_kind = {(each.api_version, each.kind): each for each in self.resources}

    def preferred(self, *verbs: str) -> list[Resource[Document]]:
        """Every resource that has these verbs, in one version each."""
        chosen: dict[tuple[str, str], Resource[Document]] = {}
        for resource in self.resources:
            if set(verbs) <= set(resource.verbs):
                chosen.setdefault((resource.group, resource.plural), resource)
        return list(chosen.values())

    def of_group_kind(self, group: str, kind: str) -> Resource[Document] | None:
        """A kind in the preferred version of its group."""
        return next(
            (each for each in self.resources if (each.group, each.kind) == (group, kind)), None
        )

    def of_kind(self, api_version: str, kind: str) -> Resource[Document] | None:
        return self._by_kind.get((api_version, kind))


class _Page(msgspec.Struct):
    etag: str
    resources: Sequence[Resource[Document]]
    stale: Sequence[str]


class KnownPages(Protocol):
    """Keeps answers of a server between two runs of a program."""

    def load(self, root: str) -> tuple[str, bytes] | None:
        """Return an answer's ETag and body; None if there is none."""
        ...

    def save(self, root: str, etag: str, body: bytes) -> None:
        """Keep an answer."""
        ...


class Discovery:
    """Asks a server what it serves; an answer that has not changed is not sent again."""

    def __init__(self, client: Client, kept: KnownPages | None = None) -> None:
        """`kept` answers are used if the server says that they are still right."""
        self._client = client
        self._kept = kept
        self._pages: dict[str, _Page] = {}
        self._served = ServedResources(())

    @property
    def known(self) -> ServedResources:
        """Return the resources as of the last request."""
        return self._served

    async def served(self) -> ServedResources:
        changed = [await self._refresh(root) for root in ROOTS]
        if any(changed):
            pages = [self._pages[root] for root in ROOTS]
            self._served = ServedResources(
                (each for page in pages for each in page.resources),
                (each for page in pages for each in page.stale),
            )
        return self._served

    async def _refresh(self, root: str) -> bool:
        known = self._pages.get(root)
        kept = self._kept.load(root) if self._kept and not known else None
        etag = known.etag if known else kept[0] if kept else ""
        headers = {"accept": AGGREGATED} | ({"if-none-match": etag} if etag else {})
        reply = await self._client.fetch(root, headers)
        if reply.status == 304 and kept:
            self._pages[root] = _page(*kept)
            return True
        if reply.status == 304:
            return False
        if reply.status != 200:
            raise error_of(reply.status, reply.body)
        etag = reply.headers.get("etag", "")
        self._pages[root] = _page(etag, reply.body)
        if self._kept and etag:
            self._kept.save(root, etag, reply.body)
        return True


def _page(etag: str, body: bytes) -> _Page:
    return _Page(etag, parse(body), stale_versions(body))


def parse(page: bytes) -> Sequence[Resource[Document]]:
    """The resources of an aggregated discovery document."""
    return [
        _resource(group.metadata.name, version.version, listed)
        for group in _groups(page).items
        for version in group.versions
        for listed in version.resources
    ]


def stale_versions(page: bytes) -> Sequence[str]:
    """The API versions whose resources are not known for now."""
    return [
        f"{group.metadata.name}/{version.version}"
        for group in _groups(page).items
        for version in group.versions
        if version.freshness == "Stale"
    ]


def _resource(group: str, version: str, listed: _Resource) -> Resource[Any]:
    return Resource(
        type=Document,
        group=group,
        version=version,
        plural=listed.resource,
        kind=listed.response_kind.kind,
        singular=listed.singular_resource,
        namespaced=listed.scope == "Namespaced",
        verbs=tuple(listed.verbs),
        presentation=Presentation(short_names=listed.short_names, categories=listed.categories),
    )
