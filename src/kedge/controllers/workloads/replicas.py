"""Replicas: keeps identical pods running, for ReplicaSets and ReplicationControllers."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from kedge.api.apps_v1.workload import same
from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.spec import PodTemplateSpec
from kedge.api.model import Object
from kedge.api.resource import Resource
from kedge.client.client import Client
from kedge.client.events import Recorder
from kedge.client.informer import Key
from kedge.controllers.adoption import Adoption
from kedge.controllers.loop import ControllerLoop, together
from kedge.controllers.namespaces import is_leaving as namespace_is_leaving
from kedge.controllers.pod_control import (
    BURST,
    PodControl,
    Shortfall,
    in_growing_batches,
    pod_of,
    record_held_back,
    room_for_more,
)
from kedge.controllers.pod_state import (
    available_in,
    expendable_first,
    is_active,
    is_leaving,
)
from kedge.controllers.shared_informers import (
    SharedInformers,
    controller_of,
    differ_in_status_only,
    key_of,
)
from kedge.controllers.workloads.pod_tallies import PodGroup, PodTallies
from kedge.machinery.clock import Clock
from kedge.machinery.durations import format_time
from kedge.machinery.errors import StatusError
from kedge.machinery.selectors import LabelRequirements

T = TypeVar("T", bound=Object)
S = TypeVar("S", bound=Any)
C = TypeVar("C", bound=Any)

WORKERS: Final = 5
MANY: Final = 100
"""So many pods are created without a pause."""
REPLICA_FAILURE: Final = "ReplicaFailure"


class ReplicaDemand(msgspec.Struct, frozen=True):
    """The replicas, selector and template of an owner, independent of its kind."""

    count: int
    selector: LabelRequirements
    template: PodTemplateSpec
    min_ready_seconds: int


class ReplicaFailure(msgspec.Struct, frozen=True):
    """Why pods could not be created or deleted: the ReplicaFailure condition."""

    reason: str
    message: str


class ReplicaCounts(msgspec.Struct, frozen=True):
    """The numbers of an owner's pods, as in its status."""

    replicas: int
    fully_labeled: int
    ready: int
    available: int
    terminating: int
    waiting: int = 0
    """Those of the replicas that have no node."""


class ReplicaOwnerKind(msgspec.Struct, Generic[T], frozen=True):
    """The differences between the kinds of owners."""

    resource: Resource[T]
    component: str
    """The source component of the events."""
    size: Callable[[T], int]
    """The number of replicas that an owner wants."""
    wanted: Callable[[T], ReplicaDemand]
    told: Callable[[T, ReplicaCounts, ReplicaFailure | None, str], T]
    """An owner with the status that it should have at this time."""


def tally(groups: Iterable[PodGroup], wanted: ReplicaDemand, now: datetime) -> ReplicaCounts:
    """Count the pods that an owner manages and selects."""
    labels, seconds = wanted.template.metadata.labels.items(), wanted.min_ready_seconds
    replicas = fully_labeled = ready = available = terminating = waiting = 0
    for group in groups:
        if not wanted.selector.matches(group.labels):
            continue
        replicas += group.active
        fully_labeled += group.active if labels <= group.labels.items() else 0
        ready += group.ready
        available += group.available(seconds, now)
        terminating += group.terminating
        waiting += group.waiting
    return ReplicaCounts(replicas, fully_labeled, ready, available, terminating, waiting)


def recounted(status: S, counts: ReplicaCounts, generation: int, conditions: Sequence[Any]) -> S:
    """A status with all that the statuses of these kinds have in common."""
    new: S = replace(
        status,
        replicas=counts.replicas,
        fullyLabeledReplicas=counts.fully_labeled,
        readyReplicas=counts.ready,
        availableReplicas=counts.available,
        observedGeneration=generation,
        conditions=conditions,
    )
    return new


def failing(
    conditions: Sequence[C], condition: type[C], failure: ReplicaFailure | None, now: str
) -> Sequence[C]:
    """The conditions, with what fails; a failure that is known already keeps its first words."""
    known = [each for each in conditions if each.type == REPLICA_FAILURE]
    if failure is None:
        return [each for each in conditions if each not in known] if known else conditions
    if known:
        return conditions
    said = condition(
        type=REPLICA_FAILURE,
        status="True",
        reason=failure.reason,
        message=failure.message,
        lastTransitionTime=now,
    )
    return [*conditions, said]


def surplus(
    pods: Sequence[Pod], count: int, neighbours: Mapping[str, int], now: datetime
) -> Sequence[Pod]:
    """Return a number of pods to delete, in Kubernetes' order of deletion."""
    if count >= len(pods):
        return pods
    return sorted(pods, key=lambda pod: expendable_first(pod, neighbours, now))[:count]


def next_available(pods: Iterable[Pod], min_ready_seconds: int, now: datetime) -> float | None:
    """Seconds until the next ready pod becomes available; None if none will by waiting."""
    waits = (available_in(pod, min_ready_seconds, now) for pod in pods if is_active(pod))
    return min((wait for wait in waits if wait), default=None)


class ReplicasController(Generic[T]):
    """Reconciles the owners of one kind."""

    def __init__(
        self, client: Client, shared: SharedInformers, clock: Clock, kind: ReplicaOwnerKind[T]
    ) -> None:
        self._client = client
        self._clock = clock
        self._kind = kind
        self._owners = shared.of(kind.resource)
        self._pods = shared.of(PODS)
        self._orphans = self._pods.orphans_by_labels()
        self._tallies = PodTallies(kind.resource.kind)
        self._recorder = Recorder(client, clock, kind.component)
        self._control = PodControl(client, self._pods, self._recorder)
        self._claims = Adoption(client, kind.resource, PODS, self._pods)
        self._loop = ControllerLoop(kind.component, self._reconcile, clock, workers=WORKERS)
        self._owners.follow(self._owner_changed)
        self._pods.follow(self._tallies.changed)
        self._pods.follow(self._pod_changed)

    async def run(self) -> None:
        await together(self._loop.run(), self._recorder.run())

    # Events: which owners to reconcile.

    def _owner_changed(self, before: T | None, now: T | None) -> None:
        if now is None:
            return
        if before is not None and differ_in_status_only(before, now):
            # This is mostly the write of its own reconciliation.
            self._add_after_pause(key_of(now), now.metadata.uid)
        else:
            self._loop.add(key_of(now))

    def _pod_changed(self, before: Pod | None, now: Pod | None) -> None:
        for pod in (before, now):
            if pod is not None:
                self._add_owner(pod)
        if now is not None and _may_be_adopted(before, now):
            for owner in self._owners.within(now.metadata.namespace):
                if self._kind.wanted(owner).selector.matches(now.metadata.labels):
                    self._loop.add(key_of(owner))

    def _add_owner(self, pod: Pod) -> None:
        reference, resource = controller_of(pod), self._kind.resource
        if reference is None or reference.kind != resource.kind:
            return
        key = Key(pod.metadata.namespace, reference.name)
        owner = self._owners.get(key.name, key.namespace)
        if owner is not None and self._has_room_for_many(owner):
            self._loop.add(key)
        else:
            self._add_after_pause(key, reference.uid)

    def _has_room_for_many(self, owner: T) -> bool:
        """Whether many of an owner's pods were held back and can be created now: they do not wait
        for the pause, which is for its status."""
        groups = self._tallies.of(owner.metadata.uid)
        missing = self._kind.size(owner) - sum(each.active for each in groups)
        room = room_for_more(sum(each.waiting for each in groups))
        return min(missing, room) >= MANY

    def _add_after_pause(self, key: Key, uid: str) -> None:
        self._loop.add_after_pause(key, self._pods.count_owned(uid))

    # Reconciliation.

    async def _reconcile(self, key: Key) -> None:
        owner = self._owners.get(key.name, key.namespace)
        if owner is None:
            return
        wanted = self._kind.wanted(owner)
        await self._settle(owner, wanted)
        counted = self._clock.now()
        counts = self._count(owner, wanted, counted)
        missing, failure = wanted.count - counts.replicas, None
        if missing and not is_leaving(owner):
            failure = await self._adjust(owner, wanted, counts)
            counted = self._clock.now()
            counts = self._count(owner, wanted, counted)
        await self._tell(owner, counts, _told(failure, missing))
        if failure is not None:
            raise failure
        if wanted.count - counts.replicas < 0 and not is_leaving(owner):
            self._loop.add(key)  # more than are deleted at a time
        self._wait_for_availability(key, owner, wanted.min_ready_seconds, counted)

    def _count(self, owner: T, wanted: ReplicaDemand, now: datetime) -> ReplicaCounts:
        return tally(self._tallies.of(owner.metadata.uid), wanted, now)

    def _wait_for_availability(
        self, key: Key, owner: T, min_ready_seconds: int, counted: datetime
    ) -> None:
        """Come back when time alone changes the number of available pods. It may have done so
        since they were counted, while the status was written."""
        if not min_ready_seconds:
            return
        groups = self._tallies.of(owner.metadata.uid)
        waits = [each.next_available(min_ready_seconds, counted) for each in groups]
        if (wait := min((each for each in waits if each is not None), default=None)) is not None:
            self._loop.add_later(key, wait)

    async def _settle(self, owner: T, wanted: ReplicaDemand) -> None:
        """Let an owner take orphans and let go of strangers."""
        meta, selects = owner.metadata, wanted.selector.matches
        candidates = self._orphans.selected(meta.namespace, selects)
        if not all(selects(group.labels) for group in self._tallies.of(meta.uid)):
            owned = self._pods.owned(meta.uid)
            candidates += [pod for pod in owned if not selects(pod.metadata.labels)]
        candidates = [*filter(is_active, candidates)]
        if candidates:
            await self._claims.settle(owner, lambda pod: selects(pod.metadata.labels), candidates)

    async def _adjust(
        self, owner: T, wanted: ReplicaDemand, counts: ReplicaCounts
    ) -> Exception | None:
        """Make the pods that are missing or delete those that are too many."""
        missing = wanted.count - counts.replicas
        if missing > 0:
            if missing > (room := room_for_more(counts.waiting)):
                record_held_back(self._recorder, owner)
            return await self._create(owner, wanted, min(missing, room))
        if missing < 0:
            return await self._delete(owner, self._active(owner, wanted), min(-missing, BURST))
        return None

    def _active(self, owner: T, wanted: ReplicaDemand) -> list[Pod]:
        owned, selects = self._pods.owned(owner.metadata.uid), wanted.selector.matches
        return [pod for pod in owned if is_active(pod) and selects(pod.metadata.labels)]

    async def _create(self, owner: T, wanted: ReplicaDemand, count: int) -> Exception | None:
        pod = pod_of(self._kind.resource, owner, wanted.template)

        async def one(_: int) -> None:
            try:
                await self._control.create(owner, pod)
            except StatusError as error:
                # Nothing can be made in a namespace that is leaving, now or later.
                if not namespace_is_leaving(error):
                    raise

        return await _done(count, one)

    async def _delete(self, owner: T, pods: Sequence[Pod], count: int) -> Exception | None:
        chosen = surplus(pods, count, self._neighbours(owner), self._clock.now())
        return await _done(len(chosen), lambda i: self._control.delete(owner, chosen[i]))

    def _neighbours(self, owner: T) -> Mapping[str, int]:
        """By node, the active pods of the owner and of those that have the same owner as it."""
        manager = controller_of(owner)
        family = [owner] if manager is None else self._owners.owned(manager.uid)
        return Counter(
            pod.spec.nodeName
            for each in family
            for pod in self._pods.owned(each.metadata.uid)
            if is_active(pod)
        )

    async def _tell(self, owner: T, counts: ReplicaCounts, failure: ReplicaFailure | None) -> None:
        told: Any = self._kind.told(owner, counts, failure, format_time(self._clock.now()))
        was: Any = owner
        if same(told.status, was.status):
            return
        try:
            written = await self._client.update(self._kind.resource, told, subresource="status")
        except StatusError as error:
            if error.code == 404:
                return
            raise
        await self._owners.written(written)


def _may_be_adopted(before: Pod | None, now: Pod) -> bool:
    """Whether a pod became an orphan, or is one and its labels changed."""
    if controller_of(now) is not None:
        return False
    if before is None or controller_of(before) is not None:
        return True
    return before.metadata.labels != now.metadata.labels


async def _done(count: int, act: Callable[[int], Awaitable[object]]) -> Exception | None:
    """Do something so many times; says what went wrong, if something did."""
    try:
        await in_growing_batches(count, act)
    except Shortfall as shortfall:
        return next((each for each in shortfall.failures if isinstance(each, Exception)), None)
    return None


def _told(failure: Exception | None, missing: int) -> ReplicaFailure | None:
    if failure is None:
        return None
    return ReplicaFailure("FailedCreate" if missing > 0 else "FailedDelete", str(failure))
