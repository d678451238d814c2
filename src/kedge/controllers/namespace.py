"""Deletes the content of terminating namespaces, pods first, then removes their finalizer."""

import asyncio
from itertools import islice
from typing import Any, NamedTuple

from msgspec.structs import replace

from kedge.api.core_v1.namespace import FINALIZER, RESOURCE, TERMINATING, Namespace
from kedge.api.resource import Resource
from kedge.client.client import Client, DeletionOptions
from kedge.client.discovery import Discovery
from kedge.client.informer import Key
from kedge.client.view import outlines
from kedge.controllers.loop import ControllerLoop, Unfinished
from kedge.controllers.namespace_content import (
    ContentDeletion,
    RemainingObjects,
    conditions,
    merged,
    undiscovered,
    unexpected,
)
from kedge.controllers.namespaces import Namespaces
from kedge.machinery.clock import Clock
from kedge.machinery.durations import format_time
from kedge.machinery.errors import StatusError

BACKGROUND = DeletionOptions(propagation_policy="Background")
"""The garbage collector is not to hold anything back: all of it goes anyway."""


AT_A_TIME = 8
"""Resources that are emptied together: a store that commits in groups then has groups to commit."""


class NamespaceNotEmpty(Unfinished):
    """Some of a namespace's content could not be deleted."""


class ContentWatch(NamedTuple):
    """A resource in a namespace whose remaining objects are awaited."""

    namespace: str
    group: str
    plural: str


class NamespaceController:
    """Reconciles terminating namespaces."""

    def __init__(
        self, client: Client, discovery: Discovery, namespaces: Namespaces, clock: Clock
    ) -> None:
        self._client = client
        self._discovery = discovery
        self._namespaces = namespaces
        self._clock = clock
        self._loop = ControllerLoop("namespace", self.reconcile, clock, workers=4)
        self._tasks: asyncio.TaskGroup
        self._sentries: dict[ContentWatch, asyncio.Task[None]] = {}
        """The waiters for remaining objects."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            self._namespaces.listen(self._namespace_changed)
            for namespace in self._namespaces:
                self._namespace_changed(Key("", namespace.metadata.name))
            self._tasks.create_task(self._loop.run())

    def _namespace_changed(self, key: Key) -> None:
        found = self._namespaces.get(key.name)
        if found is None:
            self._dismiss(key.name)
        elif found.metadata.deletion_timestamp:
            self._loop.add(key.name)

    async def reconcile(self, name: str) -> None:
        try:
            namespace = await self._client.get(RESOURCE, name)
            if namespace.metadata.deletionTimestamp and namespace.spec.finalizers:
                await self._end(namespace)
        except StatusError as error:
            # Already deleted by another client.
            if not (error.code == 404 and (error.details or {}).get("kind") == "namespaces"):
                raise

    async def _end(self, namespace: Namespace) -> None:
        name = namespace.metadata.name
        findings = await self._empty(name)
        namespace = await self._report(namespace, findings)
        if findings.empty:
            await self._finalize(namespace)
            return
        for leftover in findings.leftovers:
            self._await_departure(name, leftover)
        if findings.failures or findings.undiscovered:
            raise NamespaceNotEmpty(
                "; ".join([*findings.failures, findings.undiscovered]).strip("; ")
            )

    async def _empty(self, namespace: str) -> ContentDeletion:
        findings = ContentDeletion()
        try:
            served = await self._discovery.served()
        except (StatusError, OSError) as error:
            findings.undiscovered = str(error)
            return findings
        # Objects of these versions would be left without a namespace; the rest can go.
        findings.undiscovered = undiscovered(served.stale)
        namespaced = [each for each in served.preferred("delete", "list") if each.namespaced]
        pods = [each for each in namespaced if (each.group, each.plural) == ("", "pods")]
        for resource in pods:
            await self._purge(resource, namespace, findings)
        # Nothing that pods may still be using goes before they do.
        is_free = not (findings.leftovers or findings.failures)
        rest = iter([each for each in namespaced if each not in pods] if is_free else ())
        while some := list(islice(rest, AT_A_TIME)):
            await asyncio.gather(*(self._purge(each, namespace, findings) for each in some))
        return findings

    async def _purge(
        self, resource: Resource[Any], namespace: str, findings: ContentDeletion
    ) -> None:
        """Delete all objects of a resource and note what is left of them."""
        try:
            listing = await self._client.list_as(outlines(resource), namespace)
            if not listing.items:
                return
            await self._delete_all(resource, namespace, [o.metadata.name for o in listing.items])
            listing = await self._client.list_as(outlines(resource), namespace)
        except StatusError as error:
            # A custom kind that has just gone leaves nothing behind.
            if error.code not in (404, 405):
                findings.failures.append(str(error))
            return
        if listing.items:
            leftover = RemainingObjects(resource, listing.items, listing.version)
            findings.leftovers.append(leftover)
            if complaint := unexpected(namespace, leftover):
                findings.failures.append(complaint)

    async def _delete_all(self, resource: Resource[Any], namespace: str, names: list[str]) -> None:
        if "deletecollection" in resource.verbs:
            await self._client.delete_collection(resource, namespace, options=BACKGROUND)
            return
        for name in names:
            try:
                await self._client.delete(resource, name, namespace, options=BACKGROUND)
            except StatusError as error:
                if error.code != 404:
                    raise

    async def _report(self, namespace: Namespace, findings: ContentDeletion) -> Namespace:
        """Say in the status how far the deletion has come."""
        if findings.empty and not namespace.status.conditions:
            # It is over before anybody could read it.
            return namespace
        now = format_time(self._clock.now())
        said = merged(namespace.status.conditions, conditions(findings), now)
        status = replace(namespace.status, phase=TERMINATING, conditions=said)
        if status == namespace.status:
            return namespace
        changed = replace(namespace, status=status)
        return await self._client.update(RESOURCE, changed, subresource="status")

    async def _finalize(self, namespace: Namespace) -> None:
        left = [name for name in namespace.spec.finalizers if name != FINALIZER]
        released = replace(namespace, spec=replace(namespace.spec, finalizers=left))
        await self._client.update(RESOURCE, released, subresource="finalize")

    # Remaining objects: the owners of their finalizers decide when they go.

    def _await_departure(self, namespace: str, leftover: RemainingObjects) -> None:
        post = ContentWatch(namespace, leftover.resource.group, leftover.resource.plural)
        if post not in self._sentries:
            self._sentries[post] = self._tasks.create_task(self._stand(post, leftover))

    async def _stand(self, post: ContentWatch, leftover: RemainingObjects) -> None:
        """Have the namespace seen to again when the last of the leftovers is gone."""
        try:
            await self._departure(post.namespace, leftover)
        except (StatusError, OSError):
            # The server does not remember so far back, or went away: look again in a while.
            await self._clock.sleep(1)
        finally:
            del self._sentries[post]
        self._loop.add(post.namespace)

    async def _departure(self, namespace: str, leftover: RemainingObjects) -> None:
        """Return when none of these objects is there any more, or the server ends the watch."""
        waiting = {obj.metadata.uid for obj in leftover.objects}
        view = outlines(leftover.resource)
        async with self._client.watch_as(view, namespace, version=leftover.version) as events:
            async for event in events:
                if event.type == "DELETED":
                    waiting.discard(event.object.metadata.uid)
                    if not waiting:
                        return

    def _dismiss(self, namespace: str) -> None:
        for post, sentry in list(self._sentries.items()):
            if post.namespace == namespace:
                sentry.cancel()
