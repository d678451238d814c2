"""StatefulSets: each keeps numbered pods running, created, replaced and deleted in order."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from kedge.api.apps_v1.controller_revision import RESOURCE as REVISIONS
from kedge.api.apps_v1.controller_revision import ControllerRevision
from kedge.api.apps_v1.stateful_set import RESOURCE, StatefulSet
from kedge.api.apps_v1.workload import same
from kedge.api.core_v1.persistent_volume_claim import RESOURCE as CLAIMS
from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim
from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.label_selector import compiled
from kedge.client.client import Client, DeletionOptions, DeletionPreconditions
from kedge.client.events import NORMAL, WARNING, Recorder
from kedge.client.informer import Key
from kedge.controllers.adoption import Adoption
from kedge.controllers.loop import ControllerLoop, together
from kedge.controllers.namespaces import is_leaving as namespace_is_leaving
from kedge.controllers.pod_control import (
    BURST,
    Shortfall,
    count_waiting,
    in_growing_batches,
    record_held_back,
    room_for_more,
)
from kedge.controllers.pod_state import is_leaving
from kedge.controllers.shared_informers import (
    SharedInformers,
    controller_of,
    differ_in_status_only,
    key_of,
)
from kedge.controllers.workloads.history import History, Revisions, template_of
from kedge.controllers.workloads.replicas import next_available
from kedge.controllers.workloads.stateful_claims import StatefulClaims
from kedge.controllers.workloads.stateful_pods import (
    identified,
    is_member,
    numbered_pod,
    parent_and_ordinal,
    revision_of,
)
from kedge.controllers.workloads.stateful_steps import (
    CreatePod,
    DeletePod,
    LabelPod,
    Step,
    counted,
    next_steps,
)
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError

COMPONENT: Final = "statefulset-controller"
HASH_LABEL: Final = "controller.kubernetes.io/hash"
WORKERS: Final = 5


class StatefulSetController:
    """Reconciles StatefulSets."""

    def __init__(self, client: Client, shared: SharedInformers, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._sets = shared.of(RESOURCE)
        self._pods = shared.of(PODS)
        self._orphans = self._pods.by(_set_of_orphan)
        self._recorder = Recorder(client, clock, COMPONENT)
        self._members = Adoption(client, RESOURCE, PODS, self._pods)
        revisions = shared.of(REVISIONS)
        self._history = History(client, RESOURCE, revisions, hash_label=HASH_LABEL)
        claims = shared.of(CLAIMS)
        self._claims = StatefulClaims(client, claims, self._recorder)
        self._loop: ControllerLoop[Key] = ControllerLoop(
            COMPONENT, self._reconcile, clock, workers=WORKERS
        )
        self._sets.follow(self._set_changed)
        self._pods.follow(self._pod_changed)
        claims.follow(self._claim_changed)
        revisions.follow(self._revision_changed)

    async def run(self) -> None:
        await together(self._loop.run(), self._recorder.run())

    # Events: which sets to reconcile.

    def _set_changed(self, before: StatefulSet | None, now: StatefulSet | None) -> None:
        if now is None:
            return
        if before is not None and differ_in_status_only(before, now):
            self._add_after_pause(key_of(now), now.metadata.uid)
        else:
            self._loop.add(key_of(now))

    def _add_after_pause(self, key: Key, uid: str) -> None:
        self._loop.add_after_pause(key, self._pods.count_owned(uid))

    def _pod_changed(self, before: Pod | None, now: Pod | None) -> None:
        for pod in (before, now):
            if pod is None:
                continue
            owner = controller_of(pod)
            if owner is not None and owner.kind == RESOURCE.kind:
                self._add_after_pause(Key(pod.metadata.namespace, owner.name), owner.uid)
            elif (key := _set_of_orphan(pod)) is not None and self._sets.get(key.name, key[0]):
                self._loop.add(key)

    def _claim_changed(
        self, before: PersistentVolumeClaim | None, now: PersistentVolumeClaim | None
    ) -> None:
        if before is None or now is not None:
            return
        named = parent_and_ordinal(before.metadata.name)[0]
        for owner in self._sets.within(before.metadata.namespace):
            templates = (each.metadata.name for each in owner.spec.volumeClaimTemplates)
            if named in [f"{template}-{owner.metadata.name}" for template in templates]:
                self._loop.add(key_of(owner))

    def _revision_changed(
        self, before: ControllerRevision | None, _: ControllerRevision | None
    ) -> None:
        if before is None:
            return
        owner = controller_of(before)
        if owner is not None and owner.kind == RESOURCE.kind:
            self._loop.add(Key(before.metadata.namespace, owner.name))

    # Seeing to one.

    async def _reconcile(self, key: Key) -> None:
        owner = self._sets.get(key.name, key.namespace)
        if owner is None:
            return
        if is_leaving(owner):
            last = owner.status
            await self._tell(owner, last.currentRevision, last.updateRevision, last.collisionCount)
            return
        matches = compiled(owner.spec.selector).matches
        pods = await self._members.settle(
            owner,
            lambda pod: is_member(owner, pod) and matches(pod.metadata.labels),
            self._pods.owned(owner.metadata.uid) + self._orphans.get(key),
        )
        revisions = await self._history.of(
            owner, owner.spec.selector, owner.spec.template, owner.status.collisionCount or 0
        )
        current, update = _current(owner, revisions), revisions.present
        names = current.metadata.name, update.metadata.name
        failure: BaseException | None = None
        try:
            await self._settle_claims(owner, pods)
            steps = self._affordable(
                owner, pods, next_steps(owner, pods, *names, self._clock.now())
            )
            templates = {each.metadata.name: each for each in (current, update)}
            await in_growing_batches(len(steps), lambda i: self._do(owner, steps[i], templates))
        except Shortfall as shortfall:
            failure = shortfall.failures[0]
        except Exception as error:
            failure = error
        await self._tell(owner, *names, revisions.collisions)
        await self._forget(owner, revisions, pods, {*names})
        if failure is not None:
            raise failure

    def _affordable(
        self, owner: StatefulSet, pods: Sequence[Pod], steps: Iterator[Step]
    ) -> list[Step]:
        """Return the steps of this reconciliation; the resulting pod events trigger the next
        one."""
        room = room_for_more(count_waiting(pods))
        some: list[Step] = []
        for step in steps:
            if isinstance(step, CreatePod):
                if not room:
                    record_held_back(self._recorder, owner)
                    break
                room -= 1
            if len(some) == BURST:
                break
            some.append(step)
        return some

    async def _settle_claims(self, owner: StatefulSet, pods: Sequence[Pod]) -> None:
        if not owner.spec.volumeClaimTemplates:
            return
        for pod in pods:
            if pod.status.phase == "Pending" and not is_leaving(pod):
                await self._claims.make(owner, pod)
            await self._claims.hand_over(owner, pod)

    async def _tell(
        self, owner: StatefulSet, current: str, update: str, collisions: int | None
    ) -> None:
        """Write the status as it is now, and come back when it will be another by itself."""
        now = self._clock.now()
        pods = [pod for pod in self._pods.owned(owner.metadata.uid) if is_member(owner, pod)]
        status = replace(
            counted(owner, pods, current, update, now),
            collisionCount=collisions,
            conditions=owner.status.conditions,
        )
        if not same(status, owner.status):
            await self._write(replace(owner, status=status))
        wait = next_available(pods, owner.spec.minReadySeconds, now)
        if wait is not None:
            self._loop.add_later(key_of(owner), wait)

    async def _write(self, owner: StatefulSet) -> None:
        try:
            told = await self._client.update(RESOURCE, owner, subresource="status")
        except StatusError as error:
            # A set that is gone needs no status.
            if error.code != 404:
                raise
        else:
            await self._sets.written(told)

    async def _forget(
        self, owner: StatefulSet, revisions: Revisions, pods: Sequence[Pod], in_use: set[str]
    ) -> None:
        """Keep no more of the past than the set asks for, beyond what is in use."""
        limit = owner.spec.revisionHistoryLimit
        if limit is None or limit < 0:
            return
        live = in_use.union(map(revision_of, pods))
        unused = [each for each in revisions.past if each.metadata.name not in live]
        await self._history.forget(unused[: max(len(unused) - limit, 0)])

    # Writes.

    async def _do(
        self, owner: StatefulSet, step: Step, revisions: Mapping[str, ControllerRevision]
    ) -> None:
        match step:
            case CreatePod(ordinal, revision):
                template = template_of(revisions[revision])
                await self._create(owner, numbered_pod(owner, template, ordinal, revision))
            case DeletePod(pod):
                await self._delete(owner, pod)
            case LabelPod(pod):
                await self._identify(owner, pod)

    async def _create(self, owner: StatefulSet, pod: Pod) -> None:
        if self._claims.are_leftovers(owner, pod):
            return
        try:
            await self._claims.make(owner, pod)
            made = await self._client.create(PODS, pod)
        except StatusError as error:
            if namespace_is_leaving(error):
                return
            # A pod of that name belongs to another owner, which may delete it later.
            if error.reason != "AlreadyExists":
                self._say(owner, "Create", pod, error)
            raise
        self._say(owner, "Create", pod)
        await self._pods.written(made)
        await self._claims.hand_over(owner, made)

    async def _delete(self, owner: StatefulSet, pod: Pod) -> None:
        meta = pod.metadata
        options = DeletionOptions(preconditions=DeletionPreconditions(uid=meta.uid))
        try:
            await self._client.delete(PODS, meta.name, meta.namespace, options=options)
        except StatusError as error:
            if error.code not in (404, 409):
                self._say(owner, "Delete", pod, error)
                raise
        else:
            self._say(owner, "Delete", pod)
        await self._pods.until(
            key_of(pod), lambda now: now is None or now.metadata.uid != meta.uid or is_leaving(now)
        )

    async def _identify(self, owner: StatefulSet, pod: Pod) -> None:
        try:
            changed = await self._client.update(
                PODS, replace(pod, metadata=identified(pod.metadata))
            )
        except StatusError as error:
            if error.reason != "Conflict":
                self._say(owner, "Update", pod, error)
            raise
        self._say(owner, "Update", pod)
        await self._pods.written(changed)

    def _say(
        self, owner: StatefulSet, verb: str, pod: Pod, error: StatusError | None = None
    ) -> None:
        action = f"{verb} Pod {pod.metadata.name} in StatefulSet {owner.metadata.name}"
        if error is None:
            self._recorder.record(owner, NORMAL, f"Successful{verb}", f"{action} successful")
        else:
            self._recorder.record(
                owner, WARNING, f"Failed{verb}", f"{action} failed error: {error}"
            )


def _set_of_orphan(pod: Pod) -> Key | None:
    """Return the set that may adopt an orphaned pod, derived from the pod's name."""
    if controller_of(pod) is not None:
        return None
    parent, _ = parent_and_ordinal(pod.metadata.name)
    return Key(pod.metadata.namespace, parent) if parent else None


def _current(owner: StatefulSet, revisions: Revisions) -> ControllerRevision:
    """The revision before the rollout; the latest if there is no rollout."""
    name = owner.status.currentRevision
    return next((each for each in revisions.past if each.metadata.name == name), revisions.present)
