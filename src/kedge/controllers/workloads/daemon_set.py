"""DaemonSets: each keeps one pod on every node that fits."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from kedge.api.apps_v1.controller_revision import RESOURCE as REVISIONS
from kedge.api.apps_v1.controller_revision import ControllerRevision
from kedge.api.apps_v1.daemon_set import RESOURCE, DaemonSet
from kedge.api.apps_v1.workload import same
from kedge.api.core_v1.node import RESOURCE as NODES
from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.label_selector import compiled
from kedge.api.model import Object
from kedge.client.client import Client
from kedge.client.events import NORMAL, WARNING, Recorder
from kedge.client.informer import Key
from kedge.controllers.adoption import Adoption
from kedge.controllers.loop import ControllerLoop, together
from kedge.controllers.namespaces import is_leaving as namespace_is_leaving
from kedge.controllers.pod_control import PodControl, Shortfall, in_growing_batches
from kedge.controllers.pod_state import is_leaving
from kedge.controllers.shared_informers import (
    SharedInformers,
    controller_of,
    differ_in_status_only,
    key_of,
)
from kedge.controllers.workloads.daemon_nodes import HASH, daemon_pod
from kedge.controllers.workloads.daemon_steps import (
    DaemonSetSteps,
    DaemonSetView,
    counted,
    placed,
    rolling_needs,
    standing_needs,
)
from kedge.controllers.workloads.history import History, Revisions
from kedge.controllers.workloads.replicas import next_available
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError

COMPONENT: Final = "daemonset-controller"
WORKERS: Final = 2
BURST: Final = 250
"""How many pods are made or deleted at most before the set is looked at anew."""
FIRST_PAUSE: Final = timedelta(seconds=1)
LONGEST_PAUSE: Final = timedelta(minutes=15)


class _BackoffDelay(msgspec.Struct):
    since: datetime
    length: timedelta


class FailedPodBackoff:
    """Delays the replacement of failed pods: a node that rejects one pod rejects the next one."""

    def __init__(self) -> None:
        self._pauses: dict[tuple[str, int, str], _BackoffDelay] = {}

    def left(self, owner: DaemonSet, node: str, now: datetime) -> float:
        """Seconds for which a pod that failed on a node still is to be left alone."""
        pause = self._pauses.get(_pause_key(owner, node))
        return max((pause.since + pause.length - now).total_seconds(), 0.0) if pause else 0.0

    def begin(self, owner: DaemonSet, node: str, now: datetime) -> None:
        """A failed pod is deleted: the next one waits, twice as long each time."""
        self._forget_old(now)
        key = _pause_key(owner, node)
        last = self._pauses.get(key)
        length = min(last.length * 2, LONGEST_PAUSE) if last else FIRST_PAUSE
        self._pauses[key] = _BackoffDelay(now, length)

    def _forget_old(self, now: datetime) -> None:
        old = [key for key, each in self._pauses.items() if now - each.since > 2 * LONGEST_PAUSE]
        for key in old:
            del self._pauses[key]


def _pause_key(owner: DaemonSet, node: str) -> tuple[str, int, str]:
    return owner.metadata.uid, owner.status.observedGeneration, node


class DaemonSetController:
    """Reconciles DaemonSets."""

    def __init__(self, client: Client, shared: SharedInformers, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._sets = shared.of(RESOURCE)
        self._pods = shared.of(PODS)
        self._nodes = shared.of(NODES)
        self._orphans = self._pods.orphans_by_labels()
        self._recorder = Recorder(client, clock, COMPONENT)
        self._control = PodControl(client, self._pods, self._recorder)
        self._daemons = Adoption(client, RESOURCE, PODS, self._pods)
        revisions = shared.of(REVISIONS)
        self._history = History(client, RESOURCE, revisions, hash_label=HASH)
        self._pauses = FailedPodBackoff()
        self._loop: ControllerLoop[Key] = ControllerLoop(
            COMPONENT, self._reconcile, clock, workers=WORKERS
        )
        self._sets.follow(self._set_changed)
        self._pods.follow(self._dependent_changed)
        self._nodes.follow(self._node_changed)
        revisions.follow(self._revision_changed)

    async def run(self) -> None:
        await together(self._loop.run(), self._recorder.run())

    # Events: which sets to reconcile.

    def _set_changed(self, before: DaemonSet | None, now: DaemonSet | None) -> None:
        if now is None:
            return
        if before is not None and differ_in_status_only(before, now):
            self._add_after_pause(key_of(now), now.metadata.uid)
        else:
            self._loop.add(key_of(now))

    def _add_after_pause(self, key: Key, uid: str) -> None:
        self._loop.add_after_pause(key, self._pods.count_owned(uid))

    def _revision_changed(
        self, before: ControllerRevision | None, now: ControllerRevision | None
    ) -> None:
        # One that is new and has an owner was made by that owner, or is its history.
        if before is not None or (now is not None and controller_of(now) is None):
            self._dependent_changed(before, now)

    def _dependent_changed(self, before: Object | None, now: Object | None) -> None:
        for obj in (before, now):
            owner = controller_of(obj) if obj is not None else None
            if obj is not None and owner is not None and owner.kind == RESOURCE.kind:
                self._add_after_pause(Key(obj.metadata.namespace, owner.name), owner.uid)
        if now is None or not _may_be_adopted(before, now):
            return
        for candidate in self._sets.within(now.metadata.namespace):
            if compiled(candidate.spec.selector).matches(now.metadata.labels):
                self._loop.add(key_of(candidate))

    def _node_changed(self, before: Node | None, now: Node | None) -> None:
        # Nodes say every few seconds that they are alive: that moves no pods.
        if before is not None and now is not None and _is_same_place(before, now):
            return
        for owner in self._sets:
            self._loop.add(key_of(owner))

    # Reconciling one set.

    async def _reconcile(self, key: Key) -> None:
        owner = self._sets.get(key.name, key.namespace)
        if owner is None or is_leaving(owner):
            return
        matches = compiled(owner.spec.selector).matches
        await self._daemons.settle(
            owner,
            lambda pod: matches(pod.metadata.labels),
            self._pods.owned(owner.metadata.uid) + self._orphans.selected(key.namespace, matches),
        )
        revisions = await self._history.of(
            owner, owner.spec.selector, owner.spec.template, owner.status.collisionCount or 0
        )
        failure: BaseException | None = None
        try:
            await self._meet(owner, standing_needs, revisions)
            if owner.spec.updateStrategy.type == "RollingUpdate":
                await self._meet(owner, rolling_needs, revisions)
        except Shortfall as shortfall:
            failure = shortfall.failures[0]
        except Exception as error:
            failure = error
        await self._tell(owner, revisions)
        await self._forget(owner, revisions)
        if failure is not None:
            raise failure

    def _view(self, owner: DaemonSet, revisions: Revisions) -> DaemonSetView:
        nodes = sorted(self._nodes, key=lambda node: node.metadata.name)
        return DaemonSetView(owner, hash_of(revisions.present), nodes, self._clock.now())

    async def _meet(
        self,
        owner: DaemonSet,
        needs_of: Callable[[DaemonSetView, dict[str, list[Pod]]], DaemonSetSteps],
        revisions: Revisions,
    ) -> None:
        view = self._view(owner, revisions)
        needs = needs_of(view, placed(self._pods.owned(owner.metadata.uid)))
        unwanted = [*needs.unwanted, *self._due(owner, needs, view.now)][:BURST]
        nodes = needs.nodes[:BURST]

        async def make(i: int) -> None:
            try:
                await self._control.create(owner, daemon_pod(owner, view.hash, nodes[i]))
            except StatusError as error:
                if not namespace_is_leaving(error):
                    raise

        await _both(
            in_growing_batches(len(nodes), make),
            in_growing_batches(len(unwanted), lambda i: self._control.delete(owner, unwanted[i])),
        )

    def _due(self, owner: DaemonSet, needs: DaemonSetSteps, now: datetime) -> Sequence[Pod]:
        """The pods that have ended and are to be replaced now; the others are seen to later."""
        found = []
        for pod, node in needs.ended:
            about = f"daemon pod {pod.metadata.namespace}/{pod.metadata.name} on node {node}"
            if pod.status.phase == "Succeeded":
                message = f"Found succeeded {about}, will try to delete it"
                self._recorder.record(owner, NORMAL, "SucceededDaemonPod", message)
            elif left := self._pauses.left(owner, node, now):
                self._loop.add_later(key_of(owner), left)
                continue
            else:
                self._pauses.begin(owner, node, now)
                message = f"Found failed {about}, will try to kill it"
                self._recorder.record(owner, WARNING, "FailedDaemonPod", message)
            found.append(pod)
        return found

    async def _tell(self, owner: DaemonSet, revisions: Revisions) -> None:
        """Write the status, and reconcile again when time alone will change it."""
        view = self._view(owner, revisions)
        pods = self._pods.owned(owner.metadata.uid)
        status = counted(view, placed(pods), revisions.collisions or owner.status.collisionCount)
        if not same(status, owner.status):
            await self._write(replace(owner, status=status))
        wait = next_available(pods, owner.spec.minReadySeconds, view.now)
        if wait is not None:
            self._loop.add_later(key_of(owner), wait)

    async def _write(self, owner: DaemonSet) -> None:
        try:
            told = await self._client.update(RESOURCE, owner, subresource="status")
        except StatusError as error:
            # A set that is gone needs no status.
            if error.code != 404:
                raise
        else:
            await self._sets.written(told)

    async def _forget(self, owner: DaemonSet, revisions: Revisions) -> None:
        """Delete revisions beyond the history limit, except those that pods have."""
        limit = owner.spec.revisionHistoryLimit
        if limit is None:
            return
        pods = self._pods.owned(owner.metadata.uid)
        live = {pod.metadata.labels.get(HASH, "") for pod in pods}
        unused = [each for each in revisions.past if hash_of(each) not in live]
        await self._history.forget(unused[: max(len(revisions.past) - limit, 0)])


def hash_of(revision: ControllerRevision) -> str:
    """Return the labels of the pods of a revision."""
    return revision.metadata.labels.get(HASH) or revision.metadata.name


def _may_be_adopted(before: Object | None, now: Object) -> bool:
    """Whether an object has come to be without an owner, or has other labels by now."""
    if controller_of(now) is not None:
        return False
    return (
        before is None
        or controller_of(before) is not None
        or before.metadata.labels != now.metadata.labels
    )


def _is_same_place(before: Node, now: Node) -> bool:
    return (
        before.metadata.labels == now.metadata.labels
        and before.metadata.uid == now.metadata.uid
        and same(before.spec.taints, now.spec.taints)
    )


async def _both(*writes: Awaitable[None]) -> None:
    """Run all of them; raise the first failure."""
    for outcome in await asyncio.gather(*writes, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
