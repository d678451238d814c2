"""The garbage collector: watches the metadata of all objects and acts on `owner_graph`."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from msgspec import to_builtins

from kedge.api.core_v1.references import ObjectReference
from kedge.api.resource import Resource
from kedge.client.client import Client, DeletionOptions, DeletionPreconditions
from kedge.client.discovery import Discovery, ServedResources
from kedge.client.events import WARNING, Recorder
from kedge.client.informer import Cache, Informer
from kedge.client.view import Outline, OutlineMeta, outlines
from kedge.controllers import owner_graph
from kedge.controllers.kinds import PartialDefinition, ServedKinds, definitions
from kedge.controllers.loop import ControllerLoop
from kedge.controllers.owner_graph import DependentReference, GraphNode, OwnerGraph, OwnerLocation
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.machinery.selectors import escape

COMPONENT = "garbage-collector-controller"
WORKERS = 8
"""Writes in flight at a time: a store that commits in groups then has groups to commit."""
MOST_WARNINGS = 10
"""How many owners of one object are searched in all namespaces, for a warning. An object may
name ten thousand, and each search reads all objects of the owner's kind."""

Edit = Callable[[OutlineMeta], dict[str, Any]]
"""Makes the changed part of an object's metadata from what the metadata is now."""


class GraphMonitor:
    """Feeds the objects of one resource to the graph."""

    def __init__(self, collector: "GarbageCollector", resource: Resource[Any]) -> None:
        self.resource = resource
        self.task: asyncio.Task[None] | None = None
        """The task that watches the resource."""
        self.synced: asyncio.Event
        """Set when the graph knows every object that was there."""
        self._collector = collector

    def stop(self) -> None:
        """Watch no longer. A task that was cancelled keeps its frames, and they this object: a
        reference to the task would keep all in memory until a search for garbage."""
        if self.task is not None:
            self.task.cancel()
            self.task = None

    def replace(self, objects: Iterable[Outline]) -> Iterator[None]:
        graph = self._collector.graph
        uids: set[str] = set()
        for obj in objects:
            uids.add(obj.metadata.uid)
            self._collector.enqueue(graph.observe(self.resource, obj))
            yield
        self._collector.enqueue(graph.retain(self.resource, uids))

    def put(self, obj: Outline) -> None:
        self._collector.enqueue(self._collector.graph.observe(self.resource, obj))

    def remove(self, obj: Outline) -> None:
        self._collector.enqueue(self._collector.graph.forget(self.resource, obj))


class GarbageCollector:
    """Deletes objects without owners; completes foreground deletion and orphaning."""

    def __init__(self, client: Client, discovery: Discovery, clock: Clock) -> None:
        self.graph = OwnerGraph()
        self._client = client
        self._discovery = discovery
        self._clock = clock
        self._recorder = Recorder(client, clock, COMPONENT)
        self._loop: ControllerLoop[str] = ControllerLoop(
            "garbage-collector", self.reconcile, clock, workers=WORKERS
        )
        self._served = ServedResources(())
        self._kinds = ServedKinds(self._served, ())
        self._definitions: Cache[PartialDefinition] = Cache()
        self._informer = Informer(client, definitions(), self._definitions, clock)
        self._monitors: dict[tuple[str, str, str], GraphMonitor] = {}
        """By group, version and plural."""
        self._unresolved: set[str] = set()
        """Dependents whose owner is of a kind that discovery does not list."""
        self._tasks: asyncio.TaskGroup

    async def run(self) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            self._tasks.create_task(self._recorder.run())
            self._tasks.create_task(self._informer.run())
            await self._informer.synced.wait()
            self._served = await self._discover()
            self._definitions.listen(lambda _: self._follow())
            self._follow()
            await self._all_synced()
            self._tasks.create_task(self._loop.run())

    async def _discover(self) -> ServedResources:
        while True:
            try:
                return await self._discovery.served()
            except (StatusError, OSError):
                await self._clock.sleep(1)

    def enqueue(self, uids: Iterable[str]) -> None:
        for uid in uids:
            self._loop.add(uid)

    # Which resources are followed.

    def _follow(self) -> None:
        """Begin to follow what has come to be served and leave what no longer is."""
        self._kinds = ServedKinds(self._served, self._definitions)
        wanted = {(r.group, r.version, r.plural): r for r in self._kinds.followed()}
        for place in self._monitors.keys() - wanted.keys():
            left = self._monitors.pop(place)
            left.stop()
            self._leave(left.resource)
        for place in wanted.keys() - self._monitors.keys():
            self._monitors[place] = self._monitor(wanted[place])
        self.enqueue(self._unresolved)
        self._unresolved.clear()

    def _leave(self, resource: Resource[Any]) -> None:
        """Forget the objects of a resource; they are gone only if their definition is."""
        if self._definitions.get(f"{resource.plural}.{resource.group}") is None:
            self._tasks.create_task(self._abolish(resource))
        else:
            self.enqueue(self.graph.retain(resource, set()))

    async def _abolish(self, resource: Resource[Any]) -> None:
        for affected in self.graph.abolish(resource):
            self.enqueue(affected)
            await self._clock.give_way()

    def _monitor(self, resource: Resource[Any]) -> GraphMonitor:
        monitor = GraphMonitor(self, resource)
        informer = Informer(self._client, outlines(resource), monitor, self._clock)
        monitor.synced = informer.synced
        monitor.task = self._tasks.create_task(informer.run())
        return monitor

    async def _all_synced(self) -> None:
        """Return when every resource that is still served has been listed."""
        for monitor in list(self._monitors.values()):
            task = monitor.task
            if task is not None and not monitor.synced.is_set():
                waiting = self._tasks.create_task(monitor.synced.wait())
                await asyncio.wait((waiting, task), return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()

    # One node.

    async def reconcile(self, uid: str) -> None:
        while (node := self.graph.get(uid)) is not None:
            action = owner_graph.decide(self.graph, node)
            await self._clock.give_way()
            match action:
                case owner_graph.FindOwners(references):
                    if not await self._look(node, references):
                        return
                    continue
                case owner_graph.DeleteObject(policy, unblock):
                    self._warn(node)
                    await self._delete(node, policy, unblock)
                case owner_graph.RemoveReferences(uids):
                    self._warn(node)
                    await self._disown(node, uids)
                case owner_graph.RemoveForegroundFinalizer():
                    await self._all_synced()
                    await self._remove_finalizer(node, owner_graph.FOREGROUND)
                case owner_graph.OrphanDependents():
                    await self._all_synced()
                    await self._orphan(node)
            return

    async def _look(self, dependent: GraphNode, references: Iterable[DependentReference]) -> bool:
        """Find out about owners; False if nothing can be found out about one of them."""
        found = True
        for i, each in enumerate(references):
            found &= await self._look_for(dependent, each, warn=i < MOST_WARNINGS)
        return found

    async def _look_for(
        self, dependent: GraphNode, reference: DependentReference, *, warn: bool
    ) -> bool:
        resource = self._kinds.of_kind(reference.api_version, reference.kind)
        if resource is None:
            self._unresolved.add(dependent.uid)
            return False
        if resource.namespaced and not dependent.namespace:
            # Such a reference is invalid and says nothing about whether the object may stay.
            if warn:
                await self._look_elsewhere(resource, reference)
                self._warn(dependent)
            return False
        namespace = dependent.namespace if resource.namespaced else ""
        found = await self._get(resource, reference.name, namespace)
        if found is None or found.metadata.uid != reference.uid:
            self.graph.confirm_absent(
                OwnerLocation(
                    resource.group, resource.kind, namespace, reference.name, reference.uid
                )
            )
            if namespace and warn:
                await self._look_elsewhere(resource, reference)
        else:
            self.enqueue(self.graph.confirm_present(self._as_followed(resource), found))
        return True

    async def _look_elsewhere(self, resource: Resource[Any], reference: DependentReference) -> None:
        """Find the owner in whatever namespace it is, for the sake of a warning and of no more."""
        if self.graph.get(reference.uid) is not None:
            return
        fields = f"metadata.name={escape(reference.name)}"
        for found in (await self._client.list_as(outlines(resource), fields=fields)).items:
            if found.metadata.uid == reference.uid:
                self.enqueue(self.graph.confirm_present(self._as_followed(resource), found))

    def _warn(self, node: GraphNode) -> None:
        """Tell people of owners that are in the wrong namespace."""
        about = ObjectReference(
            apiVersion=node.resource.api_version,
            kind=node.resource.kind,
            namespace=node.namespace,
            name=node.name,
            uid=node.uid,
        )
        for each in islice(owner_graph.misplaced(self.graph, node), MOST_WARNINGS):
            owner = (
                f"[{each.api_version}/{each.kind}, namespace: {node.namespace}, "
                f"name: {each.name}, uid: {each.uid}]"
            )
            text = f'ownerRef {owner} does not exist in namespace "{node.namespace}"'
            self._recorder.record(about, WARNING, "OwnerRefInvalidNamespace", text)

    def _as_followed(self, resource: Resource[Any]) -> Resource[Any]:
        """The version in which a resource is followed, which need not be that of a reference."""
        for monitor in self._monitors.values():
            known = monitor.resource
            if (known.group, known.plural) == (resource.group, resource.plural):
                return known
        return resource

    async def _delete(self, node: GraphNode, policy: str, unblock: bool) -> None:
        expected = DeletionPreconditions(uid=node.uid, resource_version=node.version)
        if unblock:
            await self._edit(node, _unblocking)
            expected = DeletionPreconditions(uid=node.uid)
        options = DeletionOptions(propagation_policy=policy, preconditions=expected)
        try:
            await self._client.delete(node.resource, node.name, node.namespace, options=options)
        except StatusError as error:
            if error.code == 404:
                return
            if error.code == 409:
                await self._refresh(node)
            raise

    async def _refresh(self, node: GraphNode) -> None:
        """The object is not as we believe it to be: take in how it is."""
        found = await self._get(node.resource, node.name, node.namespace)
        if found is not None and found.metadata.uid == node.uid:
            self.enqueue(self.graph.observe(node.resource, found))

    async def _disown(self, node: GraphNode, uids: frozenset[str]) -> None:
        def without(meta: OutlineMeta) -> dict[str, Any]:
            kept = [each for each in meta.owner_references if each.uid not in uids]
            return {"ownerReferences": to_builtins(kept)}

        await self._edit(node, without)

    async def _orphan(self, node: GraphNode) -> None:
        owner = frozenset([node.uid])
        left = iter(list(self.graph.dependents(node)))
        while some := list(islice(left, WORKERS)):
            await asyncio.gather(*(self._disown(dependent, owner) for dependent in some))
        await self._remove_finalizer(node, owner_graph.ORPHAN)

    async def _remove_finalizer(self, node: GraphNode, finalizer: str) -> None:
        def without(meta: OutlineMeta) -> dict[str, Any]:
            return {"finalizers": [each for each in meta.finalizers if each != finalizer]}

        await self._edit(node, without)

    async def _edit(self, node: GraphNode, change: Edit) -> None:
        """Change an object's metadata as it is on the server now."""
        found = await self._get(node.resource, node.name, node.namespace)
        if found is None or found.metadata.uid != node.uid:
            return
        patch = change(found.metadata) | {"resourceVersion": found.metadata.resource_version}
        try:
            await self._client.patch(node.resource, node.name, {"metadata": patch}, node.namespace)
        except StatusError as error:
            if error.code != 404:
                raise

    async def _get(self, resource: Resource[Any], name: str, namespace: str) -> Outline | None:
        try:
            return await self._client.get_as(outlines(resource), name, namespace)
        except StatusError as error:
            # Any other 404 says that the resource is not served just now, and nothing of objects.
            if error.code == 404 and (error.details or {}).get("name") == name:
                return None
            raise


def _unblocking(meta: OutlineMeta) -> dict[str, Any]:
    """References that block no owner: a circle of owners can end only so."""
    owners = [to_builtins(each) for each in meta.owner_references]
    return {"ownerReferences": [each | {"blockOwnerDeletion": False} for each in owners]}
