"""The next steps of a StatefulSet: pods to create, delete or label, in the order of its policy."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice

import msgspec

from kedge.api.apps_v1 import rolling
from kedge.api.apps_v1.stateful_set import StatefulSet, StatefulSetStatus
from kedge.api.core_v1.pod.pod import Pod
from kedge.controllers.pod_state import ENDED, is_available, is_leaving, is_ready
from kedge.controllers.workloads.stateful_pods import (
    first_ordinal,
    has_identity,
    ordinal_of,
    ordinals,
    revision_of,
)


class CreatePod(msgspec.Struct, frozen=True):
    """Create the pod of an ordinal from the template of a revision."""

    ordinal: int
    revision: str


class DeletePod(msgspec.Struct, frozen=True):
    pod: Pod


class LabelPod(msgspec.Struct, frozen=True):
    """Set the identity labels of a pod."""

    pod: Pod


Step = CreatePod | DeletePod | LabelPod


class ReplicaSlot(msgspec.Struct, frozen=True):
    """One desired ordinal, and its pod if it exists."""

    ordinal: int
    pod: Pod | None


class ReplicaSlots:
    """The ordinals of a set's replicas, with the pods that exist.

    `replicas` is any number up to 2**31-1, so no list of all ordinals is ever built. Callers
    stop iterating where the set has to wait, or after the steps of one reconciliation.
    """

    def __init__(self, wanted: range, pods: Mapping[int, Pod]) -> None:
        self._wanted = wanted
        self._pods = pods

    def __len__(self) -> int:
        return len(self._wanted)

    def __iter__(self) -> Iterator[ReplicaSlot]:
        """Iterate from the lowest ordinal."""
        return (ReplicaSlot(ordinal, self._pods.get(ordinal)) for ordinal in self._wanted)

    def __reversed__(self) -> Iterator[ReplicaSlot]:
        """Iterate from the highest ordinal."""
        return (ReplicaSlot(ordinal, self._pods.get(ordinal)) for ordinal in reversed(self._wanted))

    def beyond(self, index: int) -> "ReplicaSlots":
        """Return all ordinals but the lowest so many."""
        return ReplicaSlots(self._wanted[index:], self._pods)

    def pods(self) -> list[Pod]:
        """Return the pods with one of the ordinals, the highest first."""
        there = sorted((each for each in self._pods if each in self._wanted), reverse=True)
        return [self._pods[ordinal] for ordinal in there]


def next_steps(
    owner: StatefulSet, pods: Sequence[Pod], current: str, update: str, now: datetime
) -> Iterator[Step]:
    """Yield the steps that may be done now, lazily: there may be billions of them.

    An ordered set goes one step at a time and waits where a pod is not available; a parallel one
    does all at once. `current` and `update` name the revisions before and after a rollout.
    """
    if is_leaving(owner):
        return
    slots, condemned = split_pods(owner, pods)
    if owner.spec.podManagementPolicy == "Parallel":
        for slot in slots:
            if (step := _filling(owner, slot, current, update)) is not None:
                yield step
        yield from (DeletePod(pod) for pod in condemned if not is_leaving(pod))
        yield from _rolling(owner, slots, update, now)
        return
    for slot in slots:
        step = _filling(owner, slot, current, update)
        if isinstance(step, CreatePod | DeletePod):
            yield step
            return
        if _is_unavailable(owner, slot.pod, now):
            return
        if step is not None:
            yield step
    if condemned:
        yield from _shrinking(owner, condemned, now)
    else:
        yield from _rolling(owner, slots, update, now)


def split_pods(owner: StatefulSet, pods: Sequence[Pod]) -> tuple[ReplicaSlots, list[Pod]]:
    """Return the ordinals of the set, and the pods beyond them, highest first."""
    by_ordinal = {ordinal: pod for pod in pods if (ordinal := ordinal_of(pod)) >= 0}
    wanted = ordinals(owner)
    others = [ordinal for ordinal in by_ordinal if ordinal not in wanted]
    condemned = [by_ordinal[ordinal] for ordinal in sorted(others, reverse=True)]
    return ReplicaSlots(wanted, by_ordinal), condemned


def _filling(owner: StatefulSet, slot: ReplicaSlot, current: str, update: str) -> Step | None:
    """Return the step of one ordinal; an ended pod is deleted and created again."""
    pod = slot.pod
    if pod is None:
        old = _is_made_from_current(owner, slot.ordinal)
        return CreatePod(slot.ordinal, current if old else update)
    if pod.status.phase in ENDED:
        return None if is_leaving(pod) else DeletePod(pod)
    return None if has_identity(pod) else LabelPod(pod)


def _is_made_from_current(owner: StatefulSet, ordinal: int) -> bool:
    """Whether a pod that is missing is made as it was, the rollout not having come to it."""
    strategy = owner.spec.updateStrategy
    index = ordinal - first_ordinal(owner)
    if strategy.rollingUpdate is not None:
        return index < (strategy.rollingUpdate.partition or 0)
    return strategy.type == "RollingUpdate" and index < owner.status.currentReplicas


def _shrinking(owner: StatefulSet, condemned: Sequence[Pod], now: datetime) -> Iterator[Step]:
    """In order, the highest goes first, and not before those below it are well.

    The wait skips ended pods, because they cannot become ready; Kubernetes waits for ever.
    """
    highest = condemned[0]
    if is_leaving(highest):
        return
    living = [pod for pod in condemned if pod.status.phase not in ENDED]
    ill = [pod for pod in living if _is_unavailable(owner, pod, now)]
    if any(pod is highest for pod in ill) and ill[-1] is not highest:
        return
    yield DeletePod(highest)


def _rolling(owner: StatefulSet, slots: ReplicaSlots, update: str, now: datetime) -> Iterator[Step]:
    """The pods of an older revision whose turn it is, from the highest number down."""
    strategy = owner.spec.updateStrategy
    if strategy.type == "OnDelete":
        return
    pace = strategy.rollingUpdate
    later = slots.beyond((pace.partition or 0) if pace else 0)
    if pace is not None and pace.maxUnavailable is not None:
        well = sum(not _is_unavailable(owner, pod, now) for pod in slots.pods())
        room = max(rolling.count(pace.maxUnavailable, len(slots), up=False), 1)
        room -= len(slots) - well
        old = (pod for pod in later.pods() if _is_outdated(pod, update))
        yield from (DeletePod(pod) for pod in islice(old, max(room, 0)))
        return
    for slot in reversed(later):
        if slot.pod is not None and _is_outdated(slot.pod, update):
            yield DeletePod(slot.pod)
            return
        if _is_unavailable(owner, slot.pod, now):
            return


def _is_outdated(pod: Pod, update: str) -> bool:
    """Return whether a pod is to be replaced because of its revision."""
    if is_leaving(pod) or pod.status.phase in ENDED:
        return False
    return revision_of(pod) != update


def _is_unavailable(owner: StatefulSet, pod: Pod | None, now: datetime) -> bool:
    if pod is None or is_leaving(pod) or not _is_running(pod):
        return True
    return not is_available(pod, owner.spec.minReadySeconds, now)


def _is_running(pod: Pod) -> bool:
    return pod.status.phase == "Running" and is_ready(pod)


def counted(
    owner: StatefulSet, pods: Sequence[Pod], current: str, update: str, now: datetime
) -> StatefulSetStatus:
    """The status of a set with these pods; the rollout is over when all are new and ready."""
    numbered = [pod for pod in pods if ordinal_of(pod) >= 0]
    ready = [pod for pod in numbered if _is_running(pod)]
    staying = [revision_of(pod) for pod in numbered if not is_leaving(pod)]
    seconds = owner.spec.minReadySeconds
    updated, kept = staying.count(update), staying.count(current)
    all_new = updated == len(ready) == len(numbered) == (owner.spec.replicas or 0)
    if all_new and owner.spec.updateStrategy.type == "RollingUpdate":
        current, kept = update, updated
    return StatefulSetStatus(
        observedGeneration=owner.metadata.generation,
        replicas=len(numbered),
        readyReplicas=len(ready),
        availableReplicas=sum(is_available(pod, seconds, now) for pod in ready),
        currentReplicas=kept,
        updatedReplicas=updated,
        currentRevision=current,
        updateRevision=update,
    )
