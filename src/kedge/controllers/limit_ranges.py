"""Records an Event on workloads whose pods a LimitRange will reject."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from kedge.api.core_v1.limit_range import RESOURCE, LimitRange
from kedge.api.limits.bounds import NamespaceLimits, bounds_of
from kedge.api.limits.violations import LimitRangeViolation
from kedge.api.limits.workloads import RESOURCES, outcome, pod_from, template_of
from kedge.api.model import Object
from kedge.api.resource import Resource
from kedge.client.client import Client
from kedge.client.events import WARNING, Recorder
from kedge.client.informer import Cache, Informer, Key
from kedge.client.view import objects, sketches
from kedge.controllers.loop import ControllerLoop
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError

COMPONENT: Final = "limitrange-controller"
REASON: Final = "LimitRangeViolation"
REMINDER: Final = 1800.0
"""Seconds after which a violation is reported again: events expire after an hour."""
PAGE: Final = 25
"""Workloads that are listed at a time. Each may have 1.5 MiB, and a list is read in one go."""


class Workload(NamedTuple):
    """One object with a pod template."""

    plural: str
    namespace: str
    name: str


class _Owner(msgspec.Struct, frozen=True, gc=False):
    controller: bool = False


class _WorkloadMeta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    deletion_timestamp: str = ""
    owner_references: tuple[_Owner, ...] = ()

    @property
    def speaks_for_itself(self) -> bool:
        """Whether events go to this workload; those of a managed workload go to its owner."""
        return not self.deletion_timestamp and not any(o.controller for o in self.owner_references)


class PartialWorkload(msgspec.Struct, frozen=True, gc=False):
    """A workload, reduced to its identity and generation."""

    metadata: _WorkloadMeta


class _Follower:
    """Receives the workloads of one kind without keeping them."""

    def __init__(self, controller: "LimitRangeController", plural: str) -> None:
        self._controller = controller
        self._plural = plural

    def replace(self, objects: Iterable[PartialWorkload]) -> None:
        for obj in objects:
            self.put(obj)

    def put(self, obj: PartialWorkload) -> None:
        self._controller.workload_changed(self._plural, obj.metadata)

    def remove(self, obj: PartialWorkload) -> None:
        self._controller.workload_gone(
            Workload(self._plural, obj.metadata.namespace, obj.metadata.name)
        )


class LimitRangeController:
    """Watches workloads while a LimitRange exists, and checks those in its namespace."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._resources = {resource.plural: resource for resource in RESOURCES}
        self._ranges: Cache[LimitRange] = Cache()
        self._names: dict[str, set[str]] = {}
        """The names of the LimitRanges of each namespace."""
        self._bounds: dict[str, NamespaceLimits] = {}
        """By namespace; only where there are any."""
        self._seen: dict[Workload, tuple[str, int]] = {}
        """The uid and generation in which workloads were last looked at, in those namespaces."""
        self._wrong: set[Workload] = set()
        """The workloads whose pods would be rejected."""
        self._followers: list[asyncio.Task[None]] = []
        self._recorder = Recorder(client, clock, COMPONENT)
        self._loop: ControllerLoop[Workload] = ControllerLoop("limit-range", self.reconcile, clock)
        self._listing: ControllerLoop[str] = ControllerLoop(
            "limit-range-namespace", self._look_around, clock
        )
        self._tasks: asyncio.TaskGroup

    async def run(self) -> None:
        ranges = Informer(self._client, objects(RESOURCE), self._ranges, self._clock)
        async with asyncio.TaskGroup() as self._tasks:
            self._tasks.create_task(ranges.run())
            await ranges.synced.wait()
            self._ranges.listen(self._range_changed)
            for each in self._ranges:
                self._range_changed(Key(each.metadata.namespace, each.metadata.name))
            for work in (self._loop, self._listing, self._recorder):
                self._tasks.create_task(work.run())
            while True:
                await self._clock.sleep(REMINDER)
                for workload in self._wrong:
                    self._loop.add(workload)

    # Events: which objects to reconcile.

    def _range_changed(self, key: Key) -> None:
        namespace = key.namespace
        names = self._names.setdefault(namespace, set())
        names.add(key.name)
        there = [found for name in names if (found := self._ranges.get(name, namespace))]
        if there:
            self._names[namespace] = {each.metadata.name for each in there}
            self._bounds[namespace] = bounds_of(there)
            self._listing.add(namespace)
        else:
            del self._names[namespace]
            self._bounds.pop(namespace, None)
            for workload in [each for each in self._seen if each.namespace == namespace]:
                self.workload_gone(workload)
        self._follow()

    def _follow(self) -> None:
        """Follow workloads if anything holds anywhere, else nothing."""
        if self._bounds and not self._followers:
            for resource in RESOURCES:
                follower = _Follower(self, resource.plural)
                view = sketches(resource, PartialWorkload)
                informer = Informer(self._client, view, follower, self._clock)
                self._followers.append(self._tasks.create_task(informer.run()))
        elif not self._bounds:
            while self._followers:
                self._followers.pop().cancel()

    def workload_changed(self, plural: str, meta: _WorkloadMeta) -> None:
        """One workload is new or different; a new status is nothing to look at."""
        if meta.namespace not in self._bounds or not meta.speaks_for_itself:
            return
        workload = Workload(plural, meta.namespace, meta.name)
        state = meta.uid, meta.generation
        if self._seen.get(workload) != state:
            self._seen[workload] = state
            self._loop.add(workload)

    def workload_gone(self, workload: Workload) -> None:
        self._seen.pop(workload, None)
        self._wrong.discard(workload)

    async def _look_around(self, namespace: str) -> None:
        """Look at all workloads of a namespace whose bounds have changed."""
        for resource in RESOURCES:
            async for found in self._listed(resource, namespace):
                workload = Workload(resource.plural, namespace, found.metadata.name)
                self._seen.pop(workload, None)
                self.workload_changed(resource.plural, found.metadata)

    async def _listed(
        self, resource: Resource[Any], namespace: str
    ) -> AsyncIterator[PartialWorkload]:
        view, token = sketches(resource, PartialWorkload), ""
        while True:
            page = await self._client.list_encoded(view, namespace, limit=PAGE, continue_=token)
            for encoded in page.items:
                await self._clock.give_way()
                yield view.decode(encoded)
            token = page.continue_
            if not token:
                return

    # One workload.

    async def reconcile(self, workload: Workload) -> None:
        bounds = self._bounds.get(workload.namespace)
        if bounds is None:
            return
        resource: Resource[Any] = self._resources[workload.plural]
        try:
            obj = await self._client.get(resource, workload.name, workload.namespace)
        except StatusError as error:
            if error.code != 404:
                raise
            self.workload_gone(workload)
            return
        found = violations(bounds, obj)
        for violation in found:
            self._recorder.record(obj, WARNING, REASON, message(violation))
        if found:
            self._wrong.add(workload)
        else:
            self._wrong.discard(workload)


def violations(bounds: NamespaceLimits, obj: Object) -> list[LimitRangeViolation]:
    """Return the LimitRange violations of a workload's pods."""
    template = template_of(obj)
    if template is None or obj.metadata.deletionTimestamp:
        return []
    return list(outcome(bounds, pod_from(template.spec, obj.metadata.namespace)).violations)


def message(violation: LimitRangeViolation) -> str:
    return f'Pods will be refused by LimitRange "{violation.limit_range}": {violation.message}'
