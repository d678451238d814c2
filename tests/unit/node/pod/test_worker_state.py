import itertools

import pytest

from kedge.node.pod.admission import PodRejection
from kedge.node.pod.worker_state import (
    ApiObjectState,
    EndAnnounced,
    EndStep,
    ObjectDeleted,
    ObjectRemoved,
    PodCleanedUp,
    PodEnded,
    PodEvicted,
    PodPrepared,
    PodRejected,
    PodReleased,
    PodStage,
    WorkerEvent,
    WorkerState,
    next_end_step,
    transition,
)

NEW, PREPARED, ENDED, RELEASED, CLEANED_UP = PodStage
PRESENT, DELETED, REMOVED = ApiObjectState
WHY, OTHER = PodRejection("OutOfcpu", "too much"), PodRejection("NodePorts", "taken")
START = WorkerState()
RUNNING = WorkerState(stage=PREPARED)
STOPPED = WorkerState(stage=ENDED)
GONE = WorkerState(stage=RELEASED)
EVICTED = WorkerState(stage=PREPARED, eviction="disk", announced_reason="Evicted")
EVENTS: tuple[WorkerEvent, ...] = (
    PodPrepared(),
    PodRejected(WHY),
    PodEvicted("disk"),
    EndAnnounced("DeadlineExceeded"),
    PodEnded(),
    PodReleased(),
    ObjectDeleted(),
    ObjectRemoved(),
    PodCleanedUp(),
)


@pytest.mark.parametrize(
    ("before", "event", "after"),
    [
        # The stages, in their order.
        (START, PodPrepared(), RUNNING),
        (RUNNING, PodEnded(), STOPPED),
        (STOPPED, PodReleased(), GONE),
        (GONE, PodCleanedUp(), WorkerState(stage=CLEANED_UP)),
        # A pod may end before this agent has prepared it.
        (START, PodReleased(), GONE),
        # No stage leads back.
        (RUNNING, PodPrepared(), RUNNING),
        (GONE, PodPrepared(), GONE),
        (WorkerState(stage=CLEANED_UP), PodReleased(), WorkerState(stage=CLEANED_UP)),
        # The first rejection stays.
        (START, PodRejected(WHY), WorkerState(rejection=WHY)),
        (WorkerState(rejection=WHY), PodRejected(OTHER), WorkerState(rejection=WHY)),
        # An eviction counts once, and only before the pod has released its resources.
        (RUNNING, PodEvicted("disk"), EVICTED),
        (EVICTED, PodEvicted("more disk"), EVICTED),
        (GONE, PodEvicted("disk"), GONE),
        (WorkerState(stage=CLEANED_UP), PodEvicted("disk"), WorkerState(stage=CLEANED_UP)),
        # The end is announced once, by the eviction or later.
        (START, EndAnnounced("DeadlineExceeded"), WorkerState(announced_reason="DeadlineExceeded")),
        (EVICTED, EndAnnounced("Evicted"), EVICTED),
        # The object: the watch has the last word.
        (GONE, ObjectDeleted(), WorkerState(stage=RELEASED, api_object=DELETED)),
        (START, ObjectRemoved(), WorkerState(api_object=REMOVED)),
        (WorkerState(api_object=DELETED), ObjectRemoved(), WorkerState(api_object=REMOVED)),
        (WorkerState(api_object=REMOVED), ObjectDeleted(), WorkerState(api_object=REMOVED)),
    ],
)
def test_transitions(before: WorkerState, event: WorkerEvent, after: WorkerState) -> None:
    assert transition(before, event) == after


def test_no_sequence_of_events_leads_back() -> None:
    stages, objects = list(PodStage), list(ApiObjectState)
    for events in itertools.permutations(EVENTS, 4):
        state = START
        for event in events:
            after = transition(state, event)
            assert stages.index(after.stage) >= stages.index(state.stage)
            assert objects.index(after.api_object) >= objects.index(state.api_object)
            assert transition(after, event) == after, "every transition is idempotent"
            state = after


@pytest.mark.parametrize(
    ("stage", "api_object", "is_terminating", "step"),
    [
        (NEW, PRESENT, False, EndStep.RELEASE),
        (PREPARED, PRESENT, False, EndStep.RELEASE),
        (PREPARED, REMOVED, True, EndStep.RELEASE),
        (ENDED, PRESENT, True, EndStep.RELEASE),
        (RELEASED, PRESENT, False, None),
        (RELEASED, PRESENT, True, EndStep.DELETE_OBJECT),
        (RELEASED, DELETED, True, None),
        (RELEASED, REMOVED, True, EndStep.CLEAN_UP),
        (RELEASED, REMOVED, False, EndStep.CLEAN_UP),
        (CLEANED_UP, REMOVED, True, None),
    ],
)
def test_the_steps_after_the_last_container(
    stage: PodStage, api_object: ApiObjectState, is_terminating: bool, step: EndStep | None
) -> None:
    state = WorkerState(stage=stage, api_object=api_object)
    assert next_end_step(state, is_terminating=is_terminating) is step


@pytest.mark.parametrize("is_terminating", [False, True])
@pytest.mark.parametrize("api_object", ApiObjectState)
@pytest.mark.parametrize("stage", PodStage)
def test_the_steps_after_the_last_container_come_to_an_end(
    stage: PodStage, api_object: ApiObjectState, is_terminating: bool
) -> None:
    results: dict[EndStep, WorkerEvent] = {
        EndStep.RELEASE: PodReleased(),
        EndStep.DELETE_OBJECT: ObjectDeleted(),
        EndStep.CLEAN_UP: PodCleanedUp(),
    }
    state = WorkerState(stage=stage, api_object=api_object)
    for _ in EndStep:
        step = next_end_step(state, is_terminating=is_terminating)
        if step is not None:
            state = transition(state, results[step])
    assert next_end_step(state, is_terminating=is_terminating) is None
    assert (state.stage is CLEANED_UP) == (api_object is REMOVED or stage is CLEANED_UP)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (START, True),
        (RUNNING, True),
        (EVICTED, True),
        (WorkerState(api_object=REMOVED), True),
        (GONE, False),
        (WorkerState(rejection=WHY), False),
        (WorkerState(stage=CLEANED_UP), False),
    ],
)
def test_a_pod_counts_until_it_has_released_its_resources(
    state: WorkerState, expected: bool
) -> None:
    assert state.uses_resources is expected
