"""Deployments: each creates a ReplicaSet for its template and moves its pods there step by step."""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from kedge.api.apps_v1.deployment import RESOURCE, Deployment, DeploymentCondition, DeploymentStatus
from kedge.api.apps_v1.replica_set import RESOURCE as REPLICA_SETS
from kedge.api.apps_v1.replica_set import ReplicaSet
from kedge.api.apps_v1.workload import same
from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.label_selector import compiled
from kedge.client.client import Client, DeletionOptions, DeletionPreconditions
from kedge.client.events import NORMAL, WARNING, Recorder
from kedge.client.informer import Key
from kedge.controllers.adoption import Adoption
from kedge.controllers.loop import ControllerLoop, together
from kedge.controllers.namespaces import is_leaving as namespace_is_leaving
from kedge.controllers.pod_state import ENDED, is_leaving
from kedge.controllers.shared_informers import (
    SharedInformers,
    controller_of,
    differ_in_status_only,
    key_of,
)
from kedge.controllers.workloads import deployment_status as progress
from kedge.controllers.workloads import revisions, rollout
from kedge.controllers.workloads.rollout import DeploymentReplicaSets, ReplicaSetResize
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError

COMPONENT: Final = "deployment-controller"
WORKERS: Final = 5


class DeploymentController:
    """Creates, resizes and deletes the ReplicaSets of Deployments."""

    def __init__(self, client: Client, shared: SharedInformers, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._deployments = shared.of(RESOURCE)
        self._sets = shared.of(REPLICA_SETS)
        self._pods = shared.of(PODS)
        self._orphans = self._sets.by(_place_of_orphan)
        self._recorder = Recorder(client, clock, COMPONENT)
        self._claims = Adoption(client, RESOURCE, REPLICA_SETS, self._sets)
        self._loop = ControllerLoop(COMPONENT, self._reconcile, clock, workers=WORKERS)
        self._deployments.follow(self._deployment_changed)
        self._sets.follow(self._set_changed)
        self._pods.follow(self._pod_changed)

    async def run(self) -> None:
        await together(self._loop.run(), self._recorder.run())

    # Events: which deployments to reconcile.

    def _deployment_changed(self, before: Deployment | None, now: Deployment | None) -> None:
        if now is None:
            return
        if before is not None and differ_in_status_only(before, now):
            self._loop.add_after_pause(key_of(now), rollout.desired_replicas(now))
        else:
            self._loop.add(key_of(now))

    def _set_changed(self, before: ReplicaSet | None, now: ReplicaSet | None) -> None:
        is_count = before is not None and now is not None and differ_in_status_only(before, now)
        for each in (before, now):
            if each is None or (key := _owner_key(each)) is None:
                continue
            if is_count:
                self._loop.add_after_pause(key, max(rollout.size(each), each.status.replicas))
            else:
                self._loop.add(key)
        if now is None or controller_of(now) is not None:
            return
        if before is not None and _looks_alike(before, now):
            return
        for deployment in self._deployments.within(now.metadata.namespace):
            if compiled(deployment.spec.selector).matches(now.metadata.labels):
                self._loop.add(key_of(deployment))

    def _pod_changed(self, before: Pod | None, now: Pod | None) -> None:
        """A Deployment with the Recreate strategy waits until its last old pod is gone."""
        if now is not None or before is None:
            return
        owner = controller_of(before)
        if owner is None or owner.kind != REPLICA_SETS.kind:
            return
        set_ = self._sets.get(owner.name, before.metadata.namespace)
        if set_ is not None and (key := _owner_key(set_)) is not None:
            deployment = self._deployments.get(key.name, key.namespace)
            if deployment is not None and not rollout.is_rolling(deployment):
                self._loop.add(key)

    # Reconciliation.

    async def _reconcile(self, key: Key) -> None:
        deployment = self._deployments.get(key.name, key.namespace)
        if deployment is None:
            return
        try:
            await self._bring_in_order(deployment)
        except StatusError as error:
            # Nothing can be made in a namespace that is leaving, now or later.
            if not namespace_is_leaving(error):
                raise

    async def _bring_in_order(self, deployment: Deployment) -> None:
        sets = await self._settle(deployment)
        said = progress.pausing(deployment, self._clock.now())
        if said is not None and not is_leaving(deployment):
            deployment = await self._say(deployment, said)
        sets = await self._keep_up_to_date(deployment, sets)
        deployment = await self._note_new_set(deployment, sets)
        if is_leaving(deployment):
            await self._count(deployment, sets)
        elif deployment.spec.paused or rollout.is_scaled(deployment, sets):
            await self._rescale(deployment, sets)
        elif rollout.is_rolling(deployment):
            await self._roll(deployment, sets)
        else:
            await self._recreate(deployment, sets)

    async def _settle(self, deployment: Deployment) -> DeploymentReplicaSets:
        """The ReplicaSets of a Deployment, orphans taken and strangers let go."""
        meta = deployment.metadata
        selector = compiled(deployment.spec.selector)
        found = await self._claims.settle(
            deployment,
            lambda each: selector.matches(each.metadata.labels),
            [*self._sets.owned(meta.uid), *self._orphans.get(meta.namespace)],
        )
        return revisions.sorted_out(deployment, found)

    async def _rescale(self, deployment: Deployment, sets: DeploymentReplicaSets) -> None:
        """Pass a change of the number of pods on, without going on with a rollout."""
        sets = await self._resize(deployment, sets, rollout.rescaled(deployment, sets))
        if deployment.spec.paused:
            await self._forget_outlived(deployment, sets)
        await self._count(deployment, sets)

    async def _roll(self, deployment: Deployment, sets: DeploymentReplicaSets) -> None:
        if sets.new is None:
            created = await self._create(deployment, sets)
            if created is None:
                return
            deployment, sets = created
        resizes = rollout.grown(deployment, sets) or rollout.shrunk(deployment, sets)
        sets = await self._resize(deployment, sets, resizes)
        if not resizes and progress.is_complete(deployment, deployment.status):
            await self._forget_outlived(deployment, sets)
        await self._report(deployment, sets)

    async def _recreate(self, deployment: Deployment, sets: DeploymentReplicaSets) -> None:
        resizes = rollout.cleared(sets)
        if resizes or self._has_old_pods(sets):
            sets = await self._resize(deployment, sets, resizes)
            await self._report(deployment, sets)
            return
        if sets.new is None:
            created = await self._create(deployment, sets)
            if created is None:
                return
            deployment, sets = created
        sets = await self._resize(deployment, sets, rollout.grown(deployment, sets))
        if progress.is_complete(deployment, deployment.status):
            await self._forget_outlived(deployment, sets)
        await self._report(deployment, sets)

    def _has_old_pods(self, sets: DeploymentReplicaSets) -> bool:
        """Whether a pod of an old template may still be running, be it about to end."""
        return any(
            each.status.replicas
            or any(pod.status.phase not in ENDED for pod in self._pods.owned(each.metadata.uid))
            for each in sets.old
        )

    # ReplicaSets.

    async def _keep_up_to_date(
        self, deployment: Deployment, sets: DeploymentReplicaSets
    ) -> DeploymentReplicaSets:
        """Let the new ReplicaSet have what it takes from its Deployment besides the template."""
        if sets.new is None:
            return sets
        new = revisions.brought_up_to_date(deployment, sets.new, sets.old)
        return DeploymentReplicaSets(await self._update_set(sets.new, new), sets.old)

    async def _create(
        self, deployment: Deployment, sets: DeploymentReplicaSets
    ) -> tuple[Deployment, DeploymentReplicaSets] | None:
        """Make the new ReplicaSet and say so; None if its name is taken: the next one differs."""
        planned = revisions.new_set(deployment, sets.old)
        name, size = planned.metadata.name, rollout.size(planned)
        try:
            new = await self._client.create(REPLICA_SETS, planned)
        except StatusError as error:
            if error.reason == "AlreadyExists":
                return await self._take_or_avoid(deployment, sets, name)
            if not namespace_is_leaving(error):
                await self._say_create_failed(deployment, name, error)
            raise
        await self._sets.written(new)
        if size:
            self._tell_scaled(deployment, name, 0, size)
        sets = DeploymentReplicaSets(new, sets.old)
        return await self._say_created(revisions.numbered(deployment, new), sets), sets

    async def _say_created(self, deployment: Deployment, sets: DeploymentReplicaSets) -> Deployment:
        """At once, before anything else may fail: the deadline of the rollout counts from here."""
        if sets.new is None or not progress.has_deadline(deployment):
            return deployment
        now = self._clock.now()
        message = f'Created new replica set "{sets.new.metadata.name}"'
        said = progress.progressing("True", progress.CREATED, message, now)
        status = progress.counted(deployment, sets, now)
        return await self._write_status(deployment, progress.saying(status, said))

    async def _take_or_avoid(
        self, deployment: Deployment, sets: DeploymentReplicaSets, name: str
    ) -> tuple[Deployment, DeploymentReplicaSets] | None:
        meta = deployment.metadata
        found = await self._client.get(REPLICA_SETS, name, meta.namespace)
        owner = controller_of(found)
        ours = owner is not None and owner.uid == meta.uid
        template = deployment.spec.template
        if ours and revisions.is_same_template(found.spec.template, template):
            await self._sets.written(found)
            return deployment, DeploymentReplicaSets(found, sets.old)
        collisions = (deployment.status.collisionCount or 0) + 1
        await self._write_status(deployment, replace(deployment.status, collisionCount=collisions))
        return None

    async def _say_create_failed(
        self, deployment: Deployment, name: str, error: StatusError
    ) -> None:
        message = f'Failed to create new replica set "{name}": {error}'
        self._recorder.record(deployment, WARNING, progress.CREATE_FAILED, message)
        if progress.has_deadline(deployment):
            now = self._clock.now()
            said = progress.progressing("False", progress.CREATE_FAILED, message, now)
            await self._say(deployment, said)

    async def _resize(
        self,
        deployment: Deployment,
        sets: DeploymentReplicaSets,
        resizes: Iterable[ReplicaSetResize],
    ) -> DeploymentReplicaSets:
        """Give ReplicaSets their sizes; returns all of them as they are then."""
        changed: dict[str, ReplicaSet] = {}
        for each in resizes:
            set_, meta = each.set, each.set.metadata
            new = replace(
                set_,
                metadata=replace(
                    meta, annotations=revisions.noting_size(deployment, meta.annotations)
                ),
                spec=replace(set_.spec, replicas=each.size),
            )
            changed[meta.uid] = await self._update_set(set_, new)
            if rollout.size(set_) != each.size:
                self._tell_scaled(deployment, meta.name, rollout.size(set_), each.size)
        if not changed:
            return sets
        new_set = sets.new and changed.get(sets.new.metadata.uid, sets.new)
        return DeploymentReplicaSets(
            new_set, [changed.get(old.metadata.uid, old) for old in sets.old]
        )

    async def _update_set(self, set_: ReplicaSet, new: ReplicaSet) -> ReplicaSet:
        if new == set_:
            return set_
        updated = await self._client.update(REPLICA_SETS, new)
        await self._sets.written(updated)
        return updated

    async def _forget_outlived(self, deployment: Deployment, sets: DeploymentReplicaSets) -> None:
        for each in revisions.outlived(deployment, sets.old):
            meta = each.metadata
            options = DeletionOptions(preconditions=DeletionPreconditions(uid=meta.uid))
            try:
                await self._client.delete(REPLICA_SETS, meta.name, meta.namespace, options=options)
            except StatusError as error:
                if error.code not in (404, 409):
                    raise

    def _tell_scaled(self, deployment: Deployment, name: str, before: int, now: int) -> None:
        way = "up" if now > before else "down"
        message = f"Scaled {way} replica set {name} from {before} to {now}"
        self._recorder.record(deployment, NORMAL, "ScalingReplicaSet", message)

    # The status.

    async def _note_new_set(
        self, deployment: Deployment, sets: DeploymentReplicaSets
    ) -> Deployment:
        """Take over the new ReplicaSet's number, and begin to watch over its progress."""
        if sets.new is None:
            return deployment
        numbered = revisions.numbered(deployment, sets.new)
        known = progress.condition(deployment.status, progress.PROGRESSING)
        if known is None and progress.has_deadline(deployment):
            message = f'Found new replica set "{sets.new.metadata.name}"'
            now = self._clock.now()
            said = progress.progressing("True", progress.FOUND, message, now)
            return await self._say(numbered, said)
        if numbered is not deployment:
            return await self._write(numbered)
        return deployment

    async def _say(self, deployment: Deployment, said: DeploymentCondition) -> Deployment:
        return await self._write_status(deployment, progress.saying(deployment.status, said))

    async def _count(self, deployment: Deployment, sets: DeploymentReplicaSets) -> None:
        status = progress.counted(deployment, sets, self._clock.now())
        if not same(status, deployment.status):
            await self._write_status(deployment, status)

    async def _report(self, deployment: Deployment, sets: DeploymentReplicaSets) -> None:
        now = self._clock.now()
        status = progress.rolled(deployment, sets, now)
        if not same(status, deployment.status):
            # The write brings the Deployment here once more.
            await self._write_status(deployment, status)
        elif (wait := progress.deadline_in(deployment, status, now)) is not None:
            self._loop.add_later(key_of(deployment), wait)

    async def _write_status(self, deployment: Deployment, status: DeploymentStatus) -> Deployment:
        return await self._write(replace(deployment, status=status))

    async def _write(self, deployment: Deployment) -> Deployment:
        # With the status go the annotations of a Deployment, as upstream's server has it.
        written = await self._client.update(RESOURCE, deployment, subresource="status")
        await self._deployments.written(written)
        return written


def _place_of_orphan(set_: ReplicaSet) -> str | None:
    return set_.metadata.namespace if controller_of(set_) is None else None


def _owner_key(set_: ReplicaSet) -> Key | None:
    owner = controller_of(set_)
    if owner is None or owner.kind != RESOURCE.kind:
        return None
    return Key(set_.metadata.namespace, owner.name)


def _looks_alike(before: ReplicaSet, now: ReplicaSet) -> bool:
    """Whether the change cannot affect the adoption of an orphaned ReplicaSet."""
    return controller_of(before) is None and before.metadata.labels == now.metadata.labels
