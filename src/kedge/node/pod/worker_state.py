"""The state of a pod's worker: one frozen value, and its transitions as a pure function.

Nothing of it is stored. A restarted agent begins with `WorkerState()` for every pod and repeats
what its predecessor may have finished. That is safe because each step is idempotent:

- PREPARED is repeated before the next container starts. Directories, cgroups and volumes that
  exist are kept.
- ENDED follows again from what the runtime reports.
- RELEASED is repeated for a pod that has ended. Volumes, cgroups and user ids that are gone are
  not an error.
- DELETED is repeated for a terminating pod. The API server answers 404, or 409 for the uid if
  another pod has taken the name; both count as success.
- The event about the end of the pod may be recorded a second time. Events are counted, not listed,
  so users see a count of 2.

The two progressions are separate fields because they are independent: the object may disappear from
the API at any stage (`kubectl delete --force`), and an agent that ends a pod may never see its
object disappear (finalizers).
"""

from enum import StrEnum

import msgspec
from msgspec.structs import replace

from kedge.node.pod.admission import PodRejection

EVICTED_REASON = "Evicted"


class PodStage(StrEnum):
    """How far the node is with a pod. A stage is never left for an earlier one."""

    NEW = "new"
    """This agent has not prepared the pod, although a previous agent may have."""
    PREPARED = "prepared"
    """Directories, cgroup and volumes of the pod exist."""
    ENDED = "ended"
    """No container runs or will run."""
    RELEASED = "released"
    """Volumes, cgroup and user ids are released."""
    CLEANED_UP = "cleaned up"
    """Nothing of the pod is left on the node; its worker ends."""


class ApiObjectState(StrEnum):
    """Whether the pod's object exists in the API, as far as the agent knows."""

    PRESENT = "present"
    DELETED = "deleted"
    """The agent has sent the final delete; finalizers may still keep the object."""
    REMOVED = "removed"
    """The watch has reported its removal."""


class WorkerState(msgspec.Struct, frozen=True):
    """Everything that a worker remembers about the progress of its pod."""

    stage: PodStage = PodStage.NEW
    api_object: ApiObjectState = ApiObjectState.PRESENT
    rejection: PodRejection | None = None
    """Why the node does not admit the pod."""
    eviction: str = ""
    """Why the pod is evicted; empty if it is not."""
    announced_reason: str = ""
    """The reason of the event about the end of the pod; empty before the event is recorded."""

    @property
    def uses_resources(self) -> bool:
        """Whether the pod counts against the resources of the node."""
        return self.rejection is None and self.stage in (PodStage.NEW, PodStage.PREPARED)

    @property
    def is_removed(self) -> bool:
        """Whether the pod's object is gone."""
        return self.api_object is ApiObjectState.REMOVED


# Transitions.


class PodPrepared(msgspec.Struct, frozen=True):
    """Directories, cgroup and volumes have been created."""


class PodRejected(msgspec.Struct, frozen=True):
    """The node cannot admit the pod."""

    rejection: PodRejection


class PodEvicted(msgspec.Struct, frozen=True):
    """The pod exceeds a limit of the node and must end; the event has been recorded."""

    message: str


class EndAnnounced(msgspec.Struct, frozen=True):
    """An event about the end of the pod has been recorded."""

    reason: str


class PodEnded(msgspec.Struct, frozen=True):
    """The last container has ended."""


class PodReleased(msgspec.Struct, frozen=True):
    """Volumes, cgroup and user ids have been released."""


class ObjectDeleted(msgspec.Struct, frozen=True):
    """The agent has deleted the pod's object."""


class ObjectRemoved(msgspec.Struct, frozen=True):
    """The watch has reported that the pod's object is gone."""


class PodCleanedUp(msgspec.Struct, frozen=True):
    """Nothing of the pod is left on the node."""


WorkerEvent = (
    PodPrepared
    | PodRejected
    | PodEvicted
    | EndAnnounced
    | PodEnded
    | PodReleased
    | ObjectDeleted
    | ObjectRemoved
    | PodCleanedUp
)


def transition(state: WorkerState, event: WorkerEvent) -> WorkerState:
    """Return the state after an event; the same state if the event changes nothing.

    Events may arrive late, because the worker awaits between observing and recording. So every
    event is legal in every state, and one that would lead backwards is ignored.
    """
    match event:
        case PodPrepared():
            return _advance(state, PodStage.PREPARED)
        case PodRejected(rejection):
            # The first reason stays: the API server has been sent a status with it.
            return state if state.rejection else replace(state, rejection=rejection)
        case PodEvicted(message):
            return _evict(state, message)
        case EndAnnounced(reason):
            return state if state.announced_reason else replace(state, announced_reason=reason)
        case PodEnded():
            return _advance(state, PodStage.ENDED)
        case PodReleased():
            return _advance(state, PodStage.RELEASED)
        case ObjectDeleted():
            # The watch may be faster than the answer to the delete; REMOVED is final.
            if state.is_removed:
                return state
            return replace(state, api_object=ApiObjectState.DELETED)
        case ObjectRemoved():
            return replace(state, api_object=ApiObjectState.REMOVED)
        case PodCleanedUp():
            return _advance(state, PodStage.CLEANED_UP)


def _advance(state: WorkerState, stage: PodStage) -> WorkerState:
    order = list(PodStage)
    return replace(state, stage=max(state.stage, stage, key=order.index))


def _evict(state: WorkerState, message: str) -> WorkerState:
    """Evict the pod, unless it is evicted already or has released what an eviction would free."""
    if state.eviction or state.stage in (PodStage.RELEASED, PodStage.CLEANED_UP):
        return state
    return replace(state, eviction=message, announced_reason=EVICTED_REASON)


# The end of a pod.


class EndStep(StrEnum):
    """A step after the last container of a pod has ended."""

    RELEASE = "release volumes, cgroup and user ids"
    DELETE_OBJECT = "delete the object"
    CLEAN_UP = "remove files and sandboxes"


def next_end_step(state: WorkerState, *, is_terminating: bool) -> EndStep | None:
    """Return the next step for a pod whose containers have ended; None if there is none for now.

    RELEASE comes before DELETE_OBJECT, as in the kubelet: once the object is gone, the scheduler
    may place another pod that needs the same volume or cgroup. CLEAN_UP comes after the object is
    gone, not after the delete: until then `kubectl logs` must find the log files, and a pod with
    finalizers keeps its object.
    """
    if state.stage in (PodStage.NEW, PodStage.PREPARED, PodStage.ENDED):
        return EndStep.RELEASE
    if state.stage is PodStage.CLEANED_UP:
        return None
    if state.is_removed:
        return EndStep.CLEAN_UP
    if is_terminating and state.api_object is ApiObjectState.PRESENT:
        return EndStep.DELETE_OBJECT
    return None
