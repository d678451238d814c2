"""Keeps the status of ResourceQuotas: the used amounts.

The API server writes what a new object uses before it stores the object. So the controller has to
lower amounts, when objects end, and to count everything for new quotas and changed bounds. Its
informers do not have the objects that are admitted and not stored. So it does not answer writes of
the status, and lowers an amount only if there was none of late; the API server, which knows all
objects, lowers it with each create.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from kedge.api.core_v1 import persistent_volume_claim, service
from kedge.api.core_v1.pod import pod
from kedge.api.core_v1.resource_quota import RESOURCE, ResourceQuota
from kedge.api.quota.account import QuotaAccount, increase
from kedge.api.quota.extended_names import ExtendedNames, can_be_extended, extended_names
from kedge.api.quota.measure import QuotaMeasure, QuotaMeter, Usage
from kedge.api.quota.meters import PODS, RESOURCE_CLAIMS, Kind, kinds_of, meter_of
from kedge.api.quota.status import at_least, status_of
from kedge.api.resource import Resource
from kedge.api.resource_v1 import device_class, resource_claim
from kedge.client.client import Client
from kedge.client.discovery import Discovery, ServedResources
from kedge.client.informer import Cache, Informer, Key
from kedge.client.view import View, objects, outlines
from kedge.controllers.kinds import PartialDefinition, ServedKinds, definitions
from kedge.controllers.loop import ControllerLoop
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError

WORKERS = 4
RECOUNT = 300.0
"""Seconds between full counts: some pods stop counting without anybody writing them."""
PAUSE = 0.05
"""Seconds between two writes of one status: many changes in a row become one write."""
SETTLE = 0.2
"""Seconds in which an object is stored and in all informers once the status has it; and in which
the status has an object once an informer has it, unless the admission plugin is off."""

_TYPED: dict[Kind, Resource[Any]] = {
    ("", "pods"): pod.RESOURCE,
    ("", "services"): service.RESOURCE,
    ("", "persistentvolumeclaims"): persistent_volume_claim.RESOURCE,
    ("resource.k8s.io", "resourceclaims"): resource_claim.RESOURCE,
}
"""The kinds whose meters want more than a document."""


class ObjectUsage(msgspec.Struct, frozen=True):
    """One object, reduced to its usage."""

    metadata: Key
    measure: QuotaMeasure


def measured(resource: Resource[Any], meter: QuotaMeter) -> View[ObjectUsage]:
    """How the objects of a resource are read."""
    if meter.looks:
        whole = objects(_TYPED.get((resource.group, resource.plural), resource))

        def look(body: bytes) -> ObjectUsage:
            obj = whole.decode(body)
            key = Key(obj.metadata.namespace, obj.metadata.name)
            return ObjectUsage(key, meter.measure(obj))

        return View(whole.resource, look)
    outline, one = outlines(resource), meter.measure(None)

    def count(body: bytes) -> ObjectUsage:
        meta = outline.decode(body).metadata
        return ObjectUsage(Key(meta.namespace, meta.name), one)

    return View(resource, count, outline.accept, outline.accept_list)


class QuotaMonitor:
    """Measures every object of one kind for the controller."""

    def __init__(
        self, controller: "ResourceQuotaController", kind: Kind, meter: QuotaMeter
    ) -> None:
        self.kind = kind
        self.meter = meter
        self.task: asyncio.Task[None] | None = None
        """The task that watches the kind."""
        self.counted = False
        """Whether every object that was there is known."""
        self._controller = controller
        self._measures: dict[str, dict[str, QuotaMeasure]] = {}

    def stop(self) -> None:
        """Watch no longer, and keep nothing of the task that did."""
        if self.task is not None:
            self.task.cancel()
            self.task = None

    def within(self, namespace: str) -> Iterable[tuple[str, QuotaMeasure]]:
        return self._measures.get(namespace, {}).items()

    def measure(self, key: Key) -> QuotaMeasure | None:
        return self._measures.get(key.namespace, {}).get(key.name)

    def replace(self, objects: Iterable[ObjectUsage]) -> None:
        self._measures = {}
        for obj in objects:
            namespace, name = obj.metadata
            self._measures.setdefault(namespace, {})[name] = obj.measure
        self.counted = True
        self._controller.recount(self)

    def put(self, obj: ObjectUsage) -> None:
        namespace, name = obj.metadata
        self._measures.setdefault(namespace, {})[name] = obj.measure
        self._controller.changed(self, obj.metadata, obj.measure)

    def remove(self, obj: ObjectUsage) -> None:
        namespace, name = obj.metadata
        known = self._measures.get(namespace, {})
        known.pop(name, None)
        if not known:
            self._measures.pop(namespace, None)
        self._controller.changed(self, obj.metadata, None)


class ResourceQuotaController:
    """Watches the kinds that quotas count."""

    def __init__(self, client: Client, discovery: Discovery, clock: Clock) -> None:
        self._client = client
        self._discovery = discovery
        self._clock = clock
        self._quotas: Cache[ResourceQuota] = Cache()
        self._definitions: Cache[PartialDefinition] = Cache()
        self._served = ServedResources(())
        self._accounts: dict[str, dict[str, QuotaAccount]] = {}
        """By namespace and name of the quota."""
        self._monitors: dict[Kind, QuotaMonitor] = {}
        self._classes: Cache[device_class.DeviceClass] | None = None
        """None until a quota needs them."""
        self._extended: ExtendedNames = {}
        self._written: dict[Key, float] = {}
        """When each status was last written."""
        self._changed: dict[Key, float] = {}
        """When each quota was last changed."""
        self._may_fall: set[Key] = set()
        """Quotas whose amounts may be lowered. Those of others contain objects that are admitted
        and not stored yet."""
        self._loop: ControllerLoop[Key] = ControllerLoop(
            "resource-quota", self.reconcile, clock, workers=WORKERS
        )
        self._tasks: asyncio.TaskGroup

    async def run(self) -> None:
        quotas = Informer(self._client, objects(RESOURCE), self._quotas, self._clock)
        custom = Informer(self._client, definitions(), self._definitions, self._clock)
        async with asyncio.TaskGroup() as self._tasks:
            for informer in (quotas, custom):
                self._tasks.create_task(informer.run())
                await informer.synced.wait()
            self._served = await self._discover()
            self._quotas.listen(self._quota_changed)
            self._definitions.listen(lambda _: self._follow())
            for quota in self._quotas:
                self._quota_changed(Key(quota.metadata.namespace, quota.metadata.name))
            self._tasks.create_task(self._loop.run())
            while True:
                await self._clock.sleep(RECOUNT)
                for monitor in self._monitors.values():
                    self.recount(monitor)

    async def _discover(self) -> ServedResources:
        while True:
            try:
                return await self._discovery.served()
            except (StatusError, OSError):
                await self._clock.sleep(1)

    # Which kinds are followed.

    def _quota_changed(self, key: Key) -> None:
        namespace, name = key
        quota = self._quotas.get(name, namespace)
        accounts = self._accounts.setdefault(namespace, {})
        if quota is None:
            accounts.pop(name, None)
            self._written.pop(key, None)
            self._changed.pop(key, None)
            self._may_fall.discard(key)
        elif name not in accounts or accounts[name].spec != quota.spec:
            account = accounts[name] = QuotaAccount(quota.spec, self._extended)
            self._count_all(namespace, account)
        else:
            self._changed[key] = self._clock.monotonic()
            if lacks_usage(quota, accounts[name].used):
                self._count_again(key)
            return
        if not accounts:
            del self._accounts[namespace]
        self._follow()
        self._count_again(key)

    def _count_again(self, key: Key) -> None:
        """Write what is counted, be it more or less than the status has."""
        self._may_fall.add(key)
        self._loop.add(key)

    def _follow(self) -> None:
        """Begin to follow the kinds that have come to count and leave those that no longer do."""
        kinds = ServedKinds(self._served, self._definitions)
        there = {(r.group, r.plural): r for r in kinds.followed() if r.namespaced}
        accounts = [each for some in self._accounts.values() for each in some.values()]
        self._follow_classes(accounts)
        found = {kind for each in accounts for kind in kinds_of(each.hard, self._extended)}
        wanted = found & there.keys()
        for kind in self._monitors.keys() - wanted:
            self._monitors.pop(kind).stop()
            for account in accounts:
                account.end(kind)
        for kind in wanted - self._monitors.keys():
            meter = meter_of(kind)
            assert meter is not None
            monitor = self._monitors[kind] = QuotaMonitor(self, kind, meter)
            view = measured(there[kind], meter)
            informer = Informer(self._client, view, monitor, self._clock)
            monitor.task = self._tasks.create_task(informer.run())

    def _follow_classes(self, accounts: Iterable[QuotaAccount]) -> None:
        """Begin to follow device classes once a quota may name their extended resources."""
        if self._classes is None and any(can_be_extended(each.hard) for each in accounts):
            self._classes = Cache()
            self._classes.listen(self._class_changed)
            view = objects(device_class.RESOURCE)
            informer = Informer(self._client, view, self._classes, self._clock)
            self._tasks.create_task(informer.run())

    def _class_changed(self, _: Key) -> None:
        extended = extended_names(self._classes or ())
        if extended == self._extended:
            return
        self._extended = extended
        for namespace, accounts in self._accounts.items():
            for name, old in accounts.items():
                account = accounts[name] = QuotaAccount(old.spec, extended)
                self._count_all(namespace, account)
                self._count_again(Key(namespace, name))
        self._follow()

    # Usage.

    def _count_all(self, namespace: str, account: QuotaAccount) -> None:
        # Pods cover claims, so they come first.
        for monitor in sorted(self._monitors.values(), key=lambda each: each.kind != PODS):
            self._count(monitor, namespace, account)

    def _count(self, monitor: QuotaMonitor, namespace: str, account: QuotaAccount) -> None:
        """Charge all that is known of a kind to an account."""
        kind, meter = monitor.kind, monitor.meter
        if not monitor.counted or not account.names(kind, meter):
            return
        now = self._clock.now()
        account.begin(kind, meter)
        for name, measure in monitor.within(namespace):
            account.cover(measure.covered_by, name)
            charge = account.charge(kind, meter, measure, measure.at(now), name)
            account.put(kind, name, charge)

    def recount(self, monitor: QuotaMonitor) -> None:
        """Anything may be different."""
        for namespace, accounts in self._accounts.items():
            for name, account in accounts.items():
                if account.shared and monitor.kind == PODS:
                    self._count_all(namespace, account)
                else:
                    self._count(monitor, namespace, account)
                self._count_again(Key(namespace, name))

    def changed(self, monitor: QuotaMonitor, key: Key, measure: QuotaMeasure | None) -> None:
        """One object is different, or gone."""
        kind = monitor.kind
        for name, account in self._accounts.get(key.namespace, {}).items():
            if not account.has_begun(kind):
                continue
            quota = Key(key.namespace, name)
            self._put(quota, account, monitor, key.name, measure)
            claims = self._monitors.get(RESOURCE_CLAIMS)
            if kind == PODS and claims and (covered := account.covered_claim(key.name)):
                again = claims.measure(Key(key.namespace, covered))
                self._put(quota, account, claims, covered, again)

    def _put(
        self,
        quota: Key,
        account: QuotaAccount,
        monitor: QuotaMonitor,
        name: str,
        measure: QuotaMeasure | None,
    ) -> None:
        """Charge an object, and see to the quota if that changes its account."""
        before = account.charged(monitor.kind, name)
        if measure is None:
            is_changed = account.remove(monitor.kind, name)
        else:
            account.cover(measure.covered_by, name)
            usage = measure.at(self._clock.now())
            charge = account.charge(monitor.kind, monitor.meter, measure, usage, name)
            is_changed = account.put(monitor.kind, name, charge)
        if increase(before, account.charged(monitor.kind, name)):
            self._count_again(quota)
        elif is_changed:
            self._loop.add_later(quota, SETTLE)

    # One quota.

    async def reconcile(self, key: Key) -> None:
        await self._pause(key)
        quota = self._quotas.get(key.name, key.namespace)
        account = self._accounts.get(key.namespace, {}).get(key.name)
        if quota is None or account is None:
            return
        may_fall = key in self._may_fall
        self._may_fall.discard(key)
        raised = status_of(quota.spec, quota.status, at_least(quota.status.used, account.used))
        status = status_of(quota.spec, quota.status, account.used) if may_fall else raised
        if status != raised and (wait := self._unsettled(key)) > 0:
            self._may_fall.add(key)
            self._loop.add_later(key, wait)
            status = raised
        if status == quota.status:
            return
        self._written[key] = self._clock.monotonic()
        try:
            await self._client.update(RESOURCE, replace(quota, status=status), subresource="status")
        except StatusError as error:
            if may_fall:
                self._may_fall.add(key)
            if error.code != 404:
                raise

    def _unsettled(self, key: Key) -> float:
        """Return the seconds for which the status may still have objects that are not stored."""
        return self._changed.get(key, -SETTLE) + SETTLE - self._clock.monotonic()

    async def _pause(self, key: Key) -> None:
        """Wait if the status was written a moment ago."""
        left = self._written.get(key, -PAUSE) + PAUSE - self._clock.monotonic()
        if left > 0:
            await self._clock.sleep(left)


def lacks_usage(quota: ResourceQuota, used: Usage) -> bool:
    """Whether the status has other bounds than the spec, or lacks an amount that is counted."""
    status = quota.status
    return status.hard != quota.spec.hard or not used.keys() <= status.used.keys()
