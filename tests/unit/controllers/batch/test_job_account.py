"""Counting pods: once each, wherever the counting is cut short."""

from collections.abc import Callable, Iterator
from functools import partial

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kedge.api.batch_v1.job_types import Job, JobSpec, JobStatus, UncountedTerminatedPods
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.status import PodStatus
from kedge.api.model import ObjectMeta
from kedge.controllers.batch.job_account import MOST_UNCOUNTED, counted, entry, is_settled
from kedge.controllers.batch.job_tally import FINALIZER, JobTally, is_tracked


def pod(uid: str, phase: str) -> Pod:
    return Pod(metadata=ObjectMeta(uid=uid, finalizers=[FINALIZER]), status=PodStatus(phase=phase))


def free(pod: Pod) -> Pod:
    return replace(pod, metadata=replace(pod.metadata, finalizers=[]))


def job(status: JobStatus) -> Job:
    return Job(spec=JobSpec(completions=10_000, parallelism=10), status=status)


class World:
    """What the server has, and a controller that may die after any write."""

    def __init__(self, phases: list[str]) -> None:
        self.status = JobStatus()
        self.pods = {str(i): pod(str(i), phase) for i, phase in enumerate(phases)}

    def sync(self, writes: int) -> bool:
        """Count as the controller does, up to so many writes; False if that was not enough."""
        pods = list(self.pods.values())
        tracked = {each.metadata.uid for each in pods if is_tracked(each)}
        named = entry(JobTally(job(self.status), pods), counted(self.status, tracked), None)
        for step in self.steps(named.status, named.pods, tracked):
            if not writes:
                return False
            step()
            writes -= 1
        return True

    def steps(
        self, status: JobStatus, pods: list[Pod], tracked: set[str]
    ) -> Iterator[Callable[[], None]]:
        """The writes, in their order."""
        yield partial(self.write, status)
        for each in pods:
            yield partial(self.pods.update, {each.metadata.uid: free(each)})
        left = tracked - {each.metadata.uid for each in pods}
        yield partial(self.write, counted(status, left))

    def write(self, status: JobStatus) -> None:
        self.status = status


@given(
    phases=st.lists(st.sampled_from(["Succeeded", "Failed", "Running"]), max_size=8),
    deaths=st.lists(st.integers(0, 9), max_size=5),
    vanish=st.booleans(),
)
def test_nothing_is_lost_or_counted_twice_whenever_the_controller_dies(
    phases: list[str], deaths: list[int], vanish: bool
) -> None:
    world = World(phases)
    for writes in deaths:
        world.sync(writes)
        if vanish:
            # What is no longer held by its finalizer may be deleted by anybody.
            world.pods = {uid: each for uid, each in world.pods.items() if is_tracked(each)}
    while not world.sync(1000):
        pass
    assert world.status.succeeded == phases.count("Succeeded")
    assert world.status.failed == phases.count("Failed")
    assert is_settled(world.status)


def test_pods_are_named_before_they_are_counted() -> None:
    tally = JobTally(job(JobStatus()), [pod("a", "Succeeded"), pod("b", "Failed"), pod("c", "")])
    named = entry(tally, tally.job.status, None)
    assert named.status.uncountedTerminatedPods == UncountedTerminatedPods(
        succeeded=["a"], failed=["b"]
    )
    assert (named.status.succeeded, named.status.failed) == (0, 0)
    assert [each.metadata.uid for each in named.pods] == ["a", "b"]


def test_only_so_many_are_named_at_a_time() -> None:
    pods = [pod(str(i), "Succeeded") for i in range(MOST_UNCOUNTED + 1)]
    named = entry(JobTally(job(JobStatus()), pods), JobStatus(), None)
    assert len(named.pods) == MOST_UNCOUNTED
    assert not named.whole
