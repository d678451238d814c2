"""Client: get, list, watch, create, update, patch, delete, for every Resource alike."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Generic, TypedDict, Unpack
from urllib.parse import quote, urlencode

import msgspec

from kedge.api.model import ListMeta
from kedge.api.resource import Resource, T
from kedge.client.transport import Call, News, Reply, Stream, Transport
from kedge.client.view import JSON, V, View, objects
from kedge.machinery.errors import StatusError, from_status

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"


class DeletionPreconditions(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Conditions that an object must meet to be deleted."""

    uid: str = ""
    resource_version: str = ""


class DeletionOptions(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"
):
    """Options of a delete request."""

    propagation_policy: str = ""
    grace_period_seconds: int | None = None
    preconditions: DeletionPreconditions = DeletionPreconditions()
    dry_run: tuple[str, ...] = ()

    def encoded(self) -> bytes:
        """As the body of a request."""
        head = {"kind": "DeleteOptions", "apiVersion": "v1"}
        return msgspec.json.encode(head | msgspec.to_builtins(self))


class ListOptions(TypedDict, total=False):
    """Which objects are listed; `labels` and `fields` are selectors."""

    labels: str
    fields: str
    limit: int
    continue_: str
    version: str


class Listing(msgspec.Struct, Generic[V], frozen=True):
    """Objects at one moment."""

    items: list[V]
    version: str
    """A watch from here on misses nothing."""
    continue_: str = ""
    """A token for the next page."""


class _Listed(msgspec.Struct, frozen=True):
    metadata: ListMeta | None = None
    items: list[msgspec.Raw] | None = None
    """Null if a server written in Go has none."""


class _Happened(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Versioned(msgspec.Struct, frozen=True):
    metadata: _Version = _Version()


_listed = msgspec.json.Decoder(_Listed)
_happened = msgspec.json.Decoder(_Happened)
_versioned = msgspec.json.Decoder(_Versioned)


class WatchEvent(Generic[V]):
    """One change: ADDED, MODIFIED, DELETED, or BOOKMARK, which has no object but a version."""

    __slots__ = ("_raw", "_view", "type")

    def __init__(self, type_: str, raw: bytes, view: View[V]) -> None:
        self.type = type_
        self._raw = raw
        self._view = view

    @property
    def object(self) -> V:
        return self._view.decode(self._raw)

    @property
    def size(self) -> int:
        """The bytes of the object."""
        return len(self._raw)

    @property
    def version(self) -> str:
        """From where a later watch goes on after this event."""
        return _versioned.decode(self._raw).metadata.resource_version


class Client:
    """Speaks to one server."""

    def __init__(self, transport: Transport, *, user_agent: str = "kedge") -> None:
        self._transport = transport
        self._agent = {"user-agent": user_agent}

    async def close(self) -> None:
        await self._transport.close()

    # Reading.

    async def get(
        self, resource: Resource[T], name: str, namespace: str = "", *, subresource: str = ""
    ) -> T:
        return await self.get_as(objects(resource), name, namespace, subresource=subresource)

    async def get_as(
        self, view: View[V], name: str, namespace: str = "", *, subresource: str = ""
    ) -> V:
        """One object, in the form of a view."""
        path = path_of(view.resource, namespace, name, subresource)
        return view.decode(await self._ask("GET", path, accept=view.accept))

    async def list(
        self, resource: Resource[T], namespace: str = "", **options: Unpack[ListOptions]
    ) -> Listing[T]:
        return await self.list_as(objects(resource), namespace, **options)

    async def list_as(
        self, view: View[V], namespace: str = "", **options: Unpack[ListOptions]
    ) -> Listing[V]:
        """Objects of one namespace or of all, in the form of a view."""
        found = await self.list_encoded(view, namespace, **options)
        return Listing([*map(view.decode, found.items)], found.version, found.continue_)

    async def list_encoded(
        self,
        view: View[Any],
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        continue_: str = "",
        version: str = "",
    ) -> Listing[msgspec.Raw]:
        """List objects without decoding them: a long list is decoded in steps by its caller."""
        query = _query(
            labelSelector=labels,
            fieldSelector=fields,
            limit=str(limit or ""),
            resourceVersion=version,
            **{"continue": continue_, **view.parameters},
        )
        path = path_of(view.resource, namespace)
        try:
            body = await self._ask("GET", path, query, accept=view.accept_list)
        except StatusError as error:
            if not _has_only_whole_objects(error, view):
                raise
            body = await self._ask("GET", path, query)
        found = _listed.decode(body)
        metadata = found.metadata or ListMeta()
        return Listing(found.items or [], metadata.resourceVersion, metadata.continue_)

    def watch(
        self,
        resource: Resource[T],
        namespace: str = "",
        *,
        version: str,
        labels: str = "",
        fields: str = "",
    ) -> AbstractAsyncContextManager["AsyncIterator[WatchEvent[T]]"]:
        return self.watch_as(
            objects(resource), namespace, version=version, labels=labels, fields=fields
        )

    @asynccontextmanager
    async def watch_as(
        self,
        view: View[V],
        namespace: str = "",
        *,
        version: str,
        labels: str = "",
        fields: str = "",
    ) -> AsyncIterator["AsyncIterator[WatchEvent[V]]"]:
        """Yield the events after a resource version, until the server ends the watch."""
        query = _query(
            watch="true",
            allowWatchBookmarks="true",
            resourceVersion=version,
            labelSelector=labels,
            fieldSelector=fields,
            **view.parameters,
        )
        path = path_of(view.resource, namespace)
        for accept in (view.accept, JSON):
            headers = {**self._agent, "accept": accept}
            call = Call("GET", path, query, headers, told=True)
            async with self._transport.stream(call) as stream:
                if stream.status < 300:
                    yield _Events(view, stream)
                    return
                error = error_of(stream.status, await stream.whole())
            if accept == JSON or not _has_only_whole_objects(error, view):
                raise error

    # Writing.

    async def create(
        self, resource: Resource[T], obj: T, *, field_manager: str = "", dry_run: bool = False
    ) -> T:
        path = path_of(resource, obj.metadata.namespace)
        query = _query(fieldManager=field_manager, dryRun="All" if dry_run else "")
        return await self._write("POST", resource, path, query, obj)

    async def update(
        self,
        resource: Resource[T],
        obj: T,
        *,
        subresource: str = "",
        field_manager: str = "",
        dry_run: bool = False,
    ) -> T:
        """Replace an object, or the part of it that a subresource stands for."""
        path = path_of(resource, obj.metadata.namespace, obj.metadata.name, subresource)
        query = _query(fieldManager=field_manager, dryRun="All" if dry_run else "")
        return await self._write("PUT", resource, path, query, obj)

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        patch: object,
        namespace: str = "",
        *,
        form: str = MERGE_PATCH,
        subresource: str = "",
        field_manager: str = "",
        force: bool = False,
    ) -> T:
        """Change an object by a description of the change, in one of the four forms."""
        path = path_of(resource, namespace, name, subresource)
        query = _query(fieldManager=field_manager, force="true" if force else "")
        body = msgspec.json.encode(patch)
        return resource.decode(await self._ask("PATCH", path, query, body=body, content=form))

    async def delete(
        self,
        resource: Resource[Any],
        name: str,
        namespace: str = "",
        *,
        options: DeletionOptions | None = None,
    ) -> None:
        """Delete an object; it may outlive the call, for its finalizers or its grace period."""
        path = path_of(resource, namespace, name)
        await self._ask("DELETE", path, body=_encoded(options))

    async def delete_collection(
        self,
        resource: Resource[Any],
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        options: DeletionOptions | None = None,
    ) -> None:
        """Delete everything selected."""
        query = _query(labelSelector=labels, fieldSelector=fields)
        path = path_of(resource, namespace)
        await self._ask("DELETE", path, query, body=_encoded(options))

    async def exchange(
        self,
        method: str,
        resource: Resource[Any],
        name: str,
        subresource: str,
        document: Mapping[str, Any] | None = None,
        *,
        namespace: str = "",
    ) -> dict[str, Any]:
        """Speak with a subresource that has a kind of its own: scale, eviction, binding, token."""
        path = path_of(resource, namespace, name, subresource)
        body = b"" if document is None else msgspec.json.encode(document)
        answer: dict[str, Any] = msgspec.json.decode(await self._ask(method, path, body=body))
        return answer

    async def fetch(self, path: str, headers: Mapping[str, str]) -> Reply:
        """A page that is no resource; the caller looks at the status."""
        return await self._transport.send(Call("GET", path, "", {**self._agent, **headers}))

    async def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        accept: str = JSON,
        body: bytes = b"",
        content: str = JSON,
    ) -> Reply:
        """A request in the caller's own words; raises what the server refuses."""
        return await self._send(method, path, _query(**(query or {})), accept, body, content)

    @asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str] | None = None
    ) -> AsyncIterator["AsyncIterator[bytes]"]:
        """A body that is read while it is being written; raises what the server refuses."""
        call = Call("GET", path, _query(**(query or {})), {**self._agent, "accept": "*/*"})
        async with self._transport.stream(call) as stream:
            if stream.status >= 300:
                raise error_of(stream.status, await stream.whole())
            yield stream.pieces

    async def _write(self, method: str, resource: Resource[T], path: str, query: str, obj: T) -> T:
        body = msgspec.json.encode(resource.to_document(obj))
        return resource.decode(await self._ask(method, path, query, body=body))

    async def _ask(
        self,
        method: str,
        path: str,
        query: str = "",
        *,
        accept: str = JSON,
        body: bytes = b"",
        content: str = JSON,
    ) -> bytes:
        return (await self._send(method, path, query, accept, body, content)).body

    async def _send(
        self, method: str, path: str, query: str, accept: str, body: bytes, content: str
    ) -> Reply:
        headers = {**self._agent, "accept": accept}
        if body:
            headers["content-type"] = content
        reply = await self._transport.send(Call(method, path, query, headers, body))
        if reply.status >= 300:
            raise error_of(reply.status, reply.body)
        return reply


class _Events(Generic[V]):
    """The lines of a watch, as events."""

    def __init__(self, view: View[V], stream: Stream) -> None:
        self._view = view
        self._pieces = stream.pieces
        self._tidings = stream.tidings
        self._rest = b""
        self._waiting: list[News] = []
        """Lines and events not yet given out, the next one last."""

    def __aiter__(self) -> "_Events[V]":
        return self

    async def __anext__(self) -> WatchEvent[V]:
        while not self._waiting:
            self._waiting = [*self._parted(await self._news())][::-1]
        first = self._waiting.pop()
        if isinstance(first, tuple):
            return WatchEvent(*first, self._view)
        happened = _happened.decode(first)
        if happened.type == "ERROR":
            raise from_status(msgspec.json.decode(happened.object))
        return WatchEvent(happened.type, happened.object, self._view)

    async def _news(self) -> Sequence[News]:
        if self._tidings is not None:
            return await self._tidings.news()
        return [await anext(self._pieces)]

    def _parted(self, news: Sequence[News]) -> Iterator[News]:
        """Events as they are, text as whole lines."""
        for each in news:
            if isinstance(each, tuple):
                yield each
            else:
                *lines, self._rest = (self._rest + each).split(b"\n")
                yield from lines


def path_of(
    resource: Resource[Any], namespace: str = "", name: str = "", subresource: str = ""
) -> str:
    """Return the path of a resource, an object or a subresource."""
    root = f"/apis/{resource.group}" if resource.group else "/api"
    parts = [root, resource.version]
    if namespace and resource.namespaced:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(resource.plural)
    if name:
        parts.append(quote(name, safe=""))
    if subresource:
        parts.append(subresource)
    return "/".join(parts)


def _has_only_whole_objects(error: StatusError, view: View[Any]) -> bool:
    """Return whether a server lacks the representation, and whole objects may stand in for it.

    The representation is requested first each time: at another time another server may answer at
    the same address, and one of kedge gives nodes nothing else.
    """
    return error.code == 406 and view.or_whole


def error_of(status: int, body: bytes) -> StatusError:
    """Return the error in an answer that is not a success."""
    try:
        document = msgspec.json.decode(body)
    except msgspec.DecodeError:
        document = None
    if isinstance(document, dict) and _is_status(document):
        return from_status(document)
    return StatusError(status, "Unknown", body.decode(errors="replace").strip())


def _is_status(document: dict[str, Any]) -> bool:
    # A kube-apiserver leaves the kind out of some, such as the one about a version in the future.
    return document.get("kind", document.get("status")) in ("Status", "Failure")


def _query(**parameters: str) -> str:
    given = {name: value for name, value in parameters.items() if value}
    return urlencode(given)


def _encoded(options: DeletionOptions | None) -> bytes:
    return b"" if options is None else options.encoded()
