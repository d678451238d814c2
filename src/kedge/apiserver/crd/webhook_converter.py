"""Converts custom resources between versions by asking the webhook of their definition."""

import asyncio
import base64
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from kedge.api.apiextensions_v1.definition import (
    CustomResourceDefinition,
    WebhookClientConfig,
    storage_version,
)
from kedge.apiserver.crd import conversion_review
from kedge.apiserver.crd.conversion_review import REVIEW_VERSIONS, RejectedConversion
from kedge.apiserver.crd.view_cache import ViewCache, ViewKey
from kedge.apiserver.long_work import LongWork
from kedge.apiserver.watchcache import Item
from kedge.apiserver.webhooks.caller import Caller, CallFailed
from kedge.apiserver.webhooks.configuration import WebhookEndpoint
from kedge.machinery.errors import StatusError

SECONDS: Final = 30
"""How long a webhook may take, as upstream's client waits."""
CALLS: Final = 8
"""Calls to the webhook of one definition at a time. Others wait, so that a slow webhook does not
gather thousands of connections."""
BATCH_OBJECTS: Final = 500
BATCH_BYTES: Final = 1 << 20
"""How much is converted by one call. An answer may have several times as much."""

Reader = Callable[[dict[str, Any]], dict[str, Any]]


class VersionForm(msgspec.Struct, frozen=True):
    """The effects of the schema of one version on a document."""

    read: Reader
    """Returns a stored document as the current schema sees it, with defaults."""
    prune: Reader
    """Returns only the declared fields."""


class WebhookConverter:
    """The conversion of one definition.

    A conversion of the same state of an object is asked for once: other requests for it wait, and
    the result is kept. If the request that asks is cancelled, one of the others asks again.
    """

    def __init__(
        self,
        definition: CustomResourceDefinition,
        forms: Mapping[str, VersionForm],
        *,
        caller: Caller,
        long_work: LongWork,
        cache: ViewCache,
    ) -> None:
        """`forms` are by version, all versions of the definition among them."""
        spec = definition.spec
        self._name = definition.metadata.name
        assert spec.conversion is not None
        webhook = spec.conversion.webhook
        accepted = webhook.conversionReviewVersions if webhook is not None else ()
        names = definition.status.acceptedNames if definition.status.acceptedNames.kind else None
        self._kind = (names or spec.names).kind
        self._review = next((each for each in accepted if each in REVIEW_VERSIONS), "")
        self._endpoint = _endpoint(webhook.clientConfig if webhook is not None else None)
        self._forms = {f"{spec.group}/{name}": form for name, form in forms.items()}
        self._heads = {version: _head(self._kind, version) for version in self._forms}
        self._home = f"{spec.group}/{storage_version(definition)}"
        self._caller = caller
        self._long_work = long_work
        self._cache = cache
        self._definition = cache.next_definition()
        self._pending: dict[ViewKey, asyncio.Future[Item]] = {}
        self._calls = asyncio.Semaphore(CALLS)

    def read(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return a stored document as the current schema of its own version sees it."""
        form = self._forms.get(document.get("apiVersion", ""))
        return document if form is None else form.read(document)

    def is_stored_form(self, item: Item) -> bool:
        """Whether an item has the version in which objects are stored now."""
        return item.body.startswith(self._heads[self._home])

    async def stored(self, value: bytes) -> bytes:
        """Return an encoded object in the version in which it is stored."""
        if value.startswith(self._heads[self._home]):
            return value
        return (await self._converted([value], self._home))[0]

    async def document(self, document: dict[str, Any], api_version: str) -> dict[str, Any]:
        """Return an object that is not stored in another version."""
        if document["apiVersion"] == api_version:
            return document
        body = msgspec.json.encode(document)
        answer = (await self._converted([body], api_version))[0]
        shown: dict[str, Any] = msgspec.json.decode(answer)
        return shown

    async def unpruned(self, value: bytes, api_version: str) -> dict[str, Any]:
        """Return an encoded object in another version, as the webhook answers."""
        answer = (await self._converted([value], api_version, _as_answered))[0]
        shown: dict[str, Any] = msgspec.json.decode(answer)
        return shown

    async def items(self, items: Sequence[Item], api_version: str) -> list[Item]:
        """Return stored objects in a version."""
        head, definition = self._heads[api_version], self._definition
        views: list[Item] = []
        absent: list[tuple[int, Item]] = []
        for i, item in enumerate(items):
            view: Item | None = item
            if not item.body.startswith(head):
                view = self._cache.get(ViewKey(definition, item.key, item.revision, api_version))
            if view is None:
                absent.append((i, item))
            views.append(view or item)
        for batch in _batches(absent):
            found = await self._views([item for _, item in batch], api_version)
            for (i, _), view in zip(batch, found, strict=True):
                views[i] = view
        return views

    async def _views(self, items: Sequence[Item], api_version: str) -> list[Item]:
        loop = asyncio.get_running_loop()
        waited: list[asyncio.Future[Item]] = []
        own: list[tuple[Item, ViewKey, asyncio.Future[Item]]] = []
        for item in items:
            key = ViewKey(self._definition, item.key, item.revision, api_version)
            future = self._pending.get(key)
            if future is None:
                future = self._pending[key] = loop.create_future()
                own.append((item, key, future))
            waited.append(future)
        if own:
            await self._lead(own, api_version)
        return [
            await self._awaited(future, item, api_version)
            for future, item in zip(waited, items, strict=True)
        ]

    async def _lead(
        self, own: Sequence[tuple[Item, ViewKey, asyncio.Future[Item]]], api_version: str
    ) -> None:
        """Convert items for this request and for those that wait for them meanwhile."""
        try:
            bodies = await self._converted([item.body for item, _, _ in own], api_version)
        except StatusError as error:
            for _, _, future in own:
                future.set_exception(error)
                future.exception()  # marks it as retrieved
        else:
            for (item, key, future), body in zip(own, bodies, strict=True):
                view = Item(item.key, item.revision, body)
                self._cache.keep(key, view)
                future.set_result(view)
        finally:
            for _, key, future in own:
                self._pending.pop(key, None)
                if not future.done():
                    future.cancel()

    async def _awaited(self, future: asyncio.Future[Item], item: Item, api_version: str) -> Item:
        if not future.done():
            await asyncio.wait([future])
        if future.cancelled():
            return (await self.items([item], api_version))[0]
        return future.result()

    async def _converted(
        self, bodies: Sequence[bytes], api_version: str, prune: Reader | None = None
    ) -> list[bytes]:
        """Return encoded objects in another version, by one call; raises 500."""
        size = sum(map(len, bodies))
        parts = await self._long_work.run(size, _originals, bodies)
        self._check_versions(parts, api_version)
        about = f"conversion webhook for {_described(parts[0])}"
        uid = str(uuid.uuid4())
        asked = conversion_review.encode(self._review, uid, api_version, bodies)
        begun, failure = asyncio.get_running_loop().time(), ""
        try:
            async with (
                self._calls,
                self._caller.answered(self._endpoint, asked, SECONDS) as answer,
            ):
                prune = prune or self._forms[api_version].prune
                return await self._long_work.run(
                    size + len(answer), self._accepted, parts, answer, uid, api_version, prune
                )
        except CallFailed as error:
            failure = "conversion_webhook_call_failure"
            why = str(error).removeprefix("failed to call webhook: ")
            raise StatusError(500, "", f"{about} failed: {why}") from None
        except RejectedConversion as error:
            failure = "conversion_webhook_malformed_response_failure"
            raise StatusError(500, "", f"{about} {error}") from None
        finally:
            seconds = asyncio.get_running_loop().time() - begun
            versions = parts[0].api_version.partition("/")[2], api_version.partition("/")[2]
            self._caller.metrics.conversion(self._name, versions, failure=failure, seconds=seconds)

    def _check_versions(
        self, parts: Sequence[conversion_review.OriginalObject], api_version: str
    ) -> None:
        for part in parts:
            if part.api_version not in self._forms:
                told = "request to convert CR from an invalid group/version"
                raise StatusError(500, "", f"{told}: {part.api_version}")
        if api_version not in self._forms:
            told = "request to convert CR to an invalid group/version"
            raise StatusError(500, "", f"{told}: {api_version}")
        if not self._review:
            raise StatusError(500, "", "no supported conversion review versions")

    def _accepted(
        self,
        parts: Sequence[conversion_review.OriginalObject],
        answer: bytes,
        uid: str,
        api_version: str,
        prune: Reader,
    ) -> list[bytes]:
        objects = conversion_review.read(answer, self._review, uid)
        if len(objects) != len(parts):
            raise RejectedConversion(f"returned {len(objects)} objects, expected {len(parts)}")
        return [
            msgspec.json.encode(
                _ordered(prune(conversion_review.converted(part, raw, api_version)))
            )
            for part, raw in zip(parts, objects, strict=True)
        ]


def _as_answered(document: dict[str, Any]) -> dict[str, Any]:
    return document


def _ordered(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document that begins as stored ones do."""
    first = {name: document[name] for name in ("kind", "apiVersion", "metadata")}
    return first | document


def _originals(bodies: Sequence[bytes]) -> list[conversion_review.OriginalObject]:
    return [conversion_review.original(body) for body in bodies]


def _described(part: conversion_review.OriginalObject) -> str:
    return f"{part.api_version}, Kind={part.kind}"


def _head(kind: str, api_version: str) -> bytes:
    return b'{"kind":"%b","apiVersion":"%b",' % (kind.encode(), api_version.encode())


def _batches(absent: Sequence[tuple[int, Item]]) -> Iterator[list[tuple[int, Item]]]:
    batch: list[tuple[int, Item]] = []
    size = 0
    for each in absent:
        size += len(each[1].body)
        if batch and (size > BATCH_BYTES or len(batch) >= BATCH_OBJECTS):
            yield batch
            batch, size = [], len(each[1].body)
        batch.append(each)
    if batch:
        yield batch


def _endpoint(client: WebhookClientConfig | None) -> WebhookEndpoint:
    if client is None:
        return WebhookEndpoint()
    service = client.service
    # Upstream takes a bundle of white space for none, which injectors of bundles start from.
    bundle = client.caBundle if base64.b64decode(client.caBundle).strip() else ""
    if service is None:
        return WebhookEndpoint(url=client.url or "", ca_bundle=bundle)
    return WebhookEndpoint(
        namespace=service.namespace,
        service=service.name,
        path=service.path or "",
        port=service.port or 443,
        ca_bundle=bundle,
    )
