"""Reads and writes objects of a cluster, which are plain dictionaries."""

import contextlib
import io
import os
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from kedge.api.resource import Resource
from kedge.cli.failure import Failure
from kedge.cli.objects import manifests
from kedge.cli.objects.connection import ApiSession, document_in, items_of
from kedge.cli.objects.manifests import Manifest
from kedge.cli.objects.targets import lookup
from kedge.cli.pods.logs.show import lines
from kedge.client.client import APPLY_PATCH, MERGE_PATCH, DeletionOptions, path_of
from kedge.cluster.errors import ClusterError
from kedge.machinery.clock import SystemClock
from kedge.machinery.errors import StatusError, from_status

KubeObject = dict[str, Any]
"""An object of the API, as its JSON says."""
ManifestSource = Mapping[str, Any] | str | os.PathLike[str] | Iterable[Mapping[str, Any]]
"""An object, several objects, a path of a file or directory, or a YAML text."""

FIELD_MANAGER = "kedge-test"
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SERVE_PAUSES: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds between tries to find a kind that was defined a moment ago."""


class ObjectEvent(NamedTuple):
    """One change that a watch reports: ADDED, MODIFIED or DELETED, and the object."""

    type: str
    object: KubeObject


class ObjectRef(NamedTuple):
    """One object on the server."""

    resource: Resource[Any]
    namespace: str
    name: str

    @property
    def path(self) -> str:
        return path_of(self.resource, self.namespace, self.name)

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.resource.singular or self.resource.kind.lower()}/{self.name}{where}"


class ObjectApi:
    """The objects of one server, seen from one namespace."""

    def __init__(self, session: ApiSession) -> None:
        self.session = session

    async def resource(self, word: str) -> Resource[Any]:
        """Return the resource that a word means: deploy, deployments.apps, Deployment."""
        with failures():
            try:
                known = self.session.discovery.known.resources
                return lookup(word, known)[0]
            except Failure:
                # The type may have been defined a moment ago.
                return lookup(word, (await self.session.discovery.served()).resources)[0]

    async def ref(self, what: str, name: str, namespace: str) -> ObjectRef:
        """Return the object that `deploy/web`, or `deploy` and `web`, mean."""
        kind, slash, rest = what.partition("/")
        if bool(slash) == bool(name) or not (name or rest):
            raise ClusterError(f'"{what}" is no object: give TYPE/NAME, or TYPE and NAME')
        resource = await self.resource(kind)
        return ObjectRef(resource, self.within(resource, namespace), name or rest)

    def within(self, resource: Resource[Any], namespace: str) -> str:
        """Return the namespace in which objects of the resource are looked for."""
        return (namespace or self.session.namespace) if resource.namespaced else ""

    async def get(self, ref: ObjectRef) -> KubeObject:
        return document_in((await self.session.client.send("GET", ref.path)).body)

    async def find(self, ref: ObjectRef) -> KubeObject | None:
        """Return the object; None if it does not exist."""
        try:
            return await self.get(ref)
        except StatusError as error:
            if error.code != 404:
                raise
            return None

    async def list(
        self, resource: Resource[Any], namespace: str, query: Mapping[str, str] | None = None
    ) -> tuple[list[KubeObject], str]:
        """Return the objects, and the resource version of the list."""
        reply = await self.session.client.send("GET", path_of(resource, namespace), query)
        document = document_in(reply.body)
        return items_of(document, resource), document["metadata"].get("resourceVersion", "")

    async def watch(
        self, resource: Resource[Any], namespace: str, query: Mapping[str, str]
    ) -> AsyncGenerator[ObjectEvent, None]:
        """Yield the changes until the server ends the watch."""
        asked = {**query, "watch": "true"}
        path = path_of(resource, namespace)
        async with self.session.client.stream(path, asked) as pieces:
            async for line in lines(pieces):
                happened = document_in(line)
                if happened["type"] == "ERROR":
                    raise from_status(happened["object"])
                yield ObjectEvent(happened["type"], happened["object"])

    async def _resource_of(self, manifest: Manifest) -> Resource[Any]:
        """Return the resource of a manifest. A kind is served a moment after it was defined."""
        for pause in (*SERVE_PAUSES, None):
            try:
                return await self.session.resource_of(manifest)
            except Failure:
                if pause is None or not await self._is_defined(manifest):
                    raise
            await SystemClock().sleep(pause)
        raise AssertionError("unreachable")

    async def _is_defined(self, manifest: Manifest) -> bool:
        try:
            reply = await self.session.client.send("GET", DEFINITIONS)
        except StatusError:
            return False  # the user may not see them
        group = manifest.api_version.rpartition("/")[0]
        specs = [each["spec"] for each in msgspec.json.decode(reply.body)["items"]]
        return any(
            each["group"] == group and each["names"]["kind"] == manifest.kind for each in specs
        )

    async def apply(self, manifest: Manifest, namespace: str, *, force: bool) -> KubeObject:
        """Write one object by server-side apply."""
        if not manifest.name:
            raise ClusterError(f"{manifest.source}: {manifest.kind} has no name")
        with failures():
            resource = await self._resource_of(manifest)
        ref = ObjectRef(
            resource, self.within(resource, manifest.namespace or namespace), manifest.name
        )
        metadata = dict(manifest.document.get("metadata") or {})
        if ref.namespace:
            metadata["namespace"] = ref.namespace
        reply = await self.session.client.send(
            "PATCH",
            ref.path,
            {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict", "force": _flag(force)},
            body=msgspec.json.encode({**manifest.document, "metadata": metadata}),
            content=APPLY_PATCH,
        )
        return document_in(reply.body)

    async def patch(self, ref: ObjectRef, patch: Mapping[str, Any], subresource: str) -> KubeObject:
        """Change an object, or a subresource of it, by a merge patch."""
        path = f"{ref.path}/{subresource}" if subresource else ref.path
        body = msgspec.json.encode(patch)
        query = {"fieldManager": FIELD_MANAGER}
        reply = await self.session.client.send("PATCH", path, query, body=body, content=MERGE_PATCH)
        return document_in(reply.body)

    async def delete(self, ref: ObjectRef, grace_seconds: int | None) -> None:
        options = DeletionOptions(
            grace_period_seconds=grace_seconds, propagation_policy="Background"
        )
        await self.session.client.send("DELETE", ref.path, body=options.encoded())


def read(source: ManifestSource) -> list[Manifest]:
    """Return the objects of a manifest; raises ClusterError if it cannot be read."""
    with failures():
        return [*_read(source)]


def _read(source: ManifestSource) -> Iterator[Manifest]:
    if isinstance(source, Mapping):
        yield from manifests.parse(msgspec.json.encode(source).decode(), "the object")
    elif isinstance(source, str) and _is_text(source):
        yield from manifests.parse(source, "the text")
    elif isinstance(source, str | os.PathLike):
        yield from manifests.read([os.fspath(source)], io.StringIO(), recursive=True)
    else:
        for each in source:
            yield from _read(each)


def _is_text(source: str) -> bool:
    """Return whether it is a manifest and not the path of one."""
    return "\n" in source or ": " in source or source.lstrip().startswith("{")


def _flag(value: bool) -> str:
    return "true" if value else ""


@contextlib.contextmanager
def failures() -> Iterator[None]:
    """Raise the failures of commands as errors of the cluster."""
    try:
        yield
    except Failure as failure:
        raise ClusterError(str(failure)) from failure
