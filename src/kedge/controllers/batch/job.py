"""JobController: runs pods until enough have succeeded or too many have failed."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kedge.api.apps_v1.workload import same
from kedge.api.batch_v1.job import RESOURCE
from kedge.api.batch_v1.job_types import Job, JobStatus, is_finished
from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.label_selector import compiled
from kedge.client.client import STRATEGIC_PATCH, Client
from kedge.client.events import NORMAL, WARNING, Recorder
from kedge.client.informer import Key
from kedge.controllers import namespaces
from kedge.controllers.adoption import Adoption
from kedge.controllers.batch.job_account import (
    counted,
    ended,
    ending,
    entry,
    is_settled,
    with_condition,
)
from kedge.controllers.batch.job_backoff import JobBackoff
from kedge.controllers.batch.job_pod import new_indexed_pod, new_pod
from kedge.controllers.batch.job_tally import (
    COMPLETE,
    FINALIZER,
    REACHED,
    SUSPENDED,
    JobOutcome,
    JobTally,
    deadline_in,
    is_indexed,
    is_tracked,
)
from kedge.controllers.loop import ControllerLoop, pause_for, together
from kedge.controllers.pod_control import (
    AT_ONCE,
    BURST,
    PodControl,
    Shortfall,
    count_waiting,
    in_growing_batches,
    record_held_back,
    room_for_more,
)
from kedge.controllers.pod_state import is_leaving, is_ready
from kedge.controllers.shared_informers import SharedInformers, controller_of, key_of
from kedge.machinery.clock import Clock
from kedge.machinery.durations import format_time
from kedge.machinery.errors import StatusError

COMPONENT: Final = "job-controller"
MANAGER: Final = "kubernetes.io/job-controller"
"""The value of `managedBy` that selects this controller."""
WORKERS: Final = 5
BATCH: Final = 0.1
"""Seconds for which news of pods are gathered at least: hundreds may end together."""


class JobPodCounts(msgspec.Struct):
    """The numbers of a job's pods after the writes of this reconciliation."""

    active: int
    ready: int
    terminating: int

    def lose(self, pods: Iterable[Pod]) -> None:
        """These were active and are deleted now."""
        for pod in pods:
            self.active -= 1
            self.ready -= is_ready(pod)
            self.terminating += 1


class JobController:
    """Reconciles Jobs, except for their deletion after the TTL."""

    def __init__(self, client: Client, shared: SharedInformers, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._jobs = shared.of(RESOURCE)
        self._pods = shared.of(PODS)
        self._orphans = self._pods.orphans_by_labels()
        self._recorder = Recorder(client, clock, COMPONENT)
        self._control = PodControl(client, self._pods, self._recorder)
        self._claims = Adoption(client, RESOURCE, PODS, self._pods, finalizers=(FINALIZER,))
        self._backoffs: dict[str, JobBackoff] = {}
        """By uid of the job."""
        self._loop: ControllerLoop[Key] = ControllerLoop(
            "job", self._reconcile, clock, workers=WORKERS
        )
        self._strays: ControllerLoop[Key] = ControllerLoop("job-strays", self._see_to_stray, clock)
        self._jobs.follow(self._job_changed)
        self._pods.follow(self._pod_changed)

    async def run(self) -> None:
        await together(self._loop.run(), self._strays.run(), self._recorder.run())

    # Events: which jobs to reconcile.

    def _job_changed(self, before: Job | None, now: Job | None) -> None:
        job = now or before
        assert job is not None
        if now is None or is_finished(now):
            self._backoffs.pop(job.metadata.uid, None)
            for pod in filter(is_tracked, self._pods.owned(job.metadata.uid)):
                self._strays.add(key_of(pod))
        if now is None or before is None or _was_told(before, now):
            self._loop.add(key_of(job))
        else:
            self._loop.add_later(key_of(job), self._pause(job))

    def _pause(self, job: Job) -> float:
        """Seconds for which news of a job's pods are gathered."""
        return max(BATCH, pause_for(self._pods.count_owned(job.metadata.uid)))

    def _pod_changed(self, before: Pod | None, now: Pod | None) -> None:
        for pod in filter(None, (before, now)):
            if (job := self._job_of(pod)) is not None and not is_finished(job):
                self._loop.add_later(key_of(job), self._pause(job))
        if now is None:
            return
        if is_tracked(now) and self._may_be_stray(now):
            self._strays.add(key_of(now))
        if controller_of(now) is None and not is_leaving(now) and _may_be_wanted(before, now):
            for job in self._jobs.within(now.metadata.namespace):
                if compiled(job.spec.selector).matches(now.metadata.labels):
                    self._loop.add_later(key_of(job), BATCH)

    def _job_of(self, pod: Pod) -> Job | None:
        owner = controller_of(pod)
        if owner is None or owner.kind != RESOURCE.kind:
            return None
        job = self._jobs.get(owner.name, pod.metadata.namespace)
        return job if job is not None and job.metadata.uid == owner.uid else None

    def _may_be_stray(self, pod: Pod) -> bool:
        # A pod may be known before its job is; one that is leaving has been there for long enough.
        return controller_of(pod) is None or (is_leaving(pod) and self._is_stray(pod))

    def _is_stray(self, pod: Pod) -> bool:
        """Whether no job will ever count a pod."""
        owner = controller_of(pod)
        if owner is None:
            return True
        if (owner.kind, owner.apiVersion) != (RESOURCE.kind, RESOURCE.api_version):
            return False
        job = self._job_of(pod)
        return job is None or (is_finished(job) and not _is_foreign(job))

    async def _see_to_stray(self, key: Key) -> None:
        pod = self._pods.get(key.name, key.namespace)
        if pod is not None and is_tracked(pod) and self._is_stray(pod):
            await self._set_free(pod)

    # One job.

    async def _reconcile(self, key: Key) -> None:
        job = self._jobs.get(key.name, key.namespace)
        if job is None or _is_foreign(job) or is_finished(job):
            return
        try:
            await self._advance(job)
        except StatusError as error:
            # The job may be deleted by now; the watch will report it.
            if error.code != 404:
                raise

    async def _advance(self, job: Job) -> None:
        now = self._clock.now()
        tally = JobTally(_begun(job, now), await self._pods_of(job))
        standing = JobPodCounts(len(tally.active), tally.ready, len(tally.terminating))
        outcome = tally.outcome(now)
        failures: Sequence[BaseException] = ()
        status = tally.job.status
        if outcome is not None:
            failures = await self._stop(tally, standing)
            if failures:
                outcome = None
        else:
            if not is_leaving(job):
                failures = await self._manage(tally, standing)
            if tally.is_complete(standing.active):
                outcome = REACHED
            elif not is_leaving(job):
                status = self._suspension(job, status)
        status = replace(
            status,
            active=standing.active,
            ready=standing.ready,
            terminating=standing.terminating,
        )
        await self._account(job, tally, status, outcome)
        if (left := deadline_in(tally.job, now)) is not None and left > 0:
            self._loop.add_later(key_of(job), left)
        if failures:
            raise failures[0]

    async def _pods_of(self, job: Job) -> list[Pod]:
        matches = compiled(job.spec.selector).matches
        candidates = [
            *self._pods.owned(job.metadata.uid),
            *self._orphans.selected(job.metadata.namespace, matches),
        ]
        return await self._claims.settle(job, lambda pod: matches(pod.metadata.labels), candidates)

    def _backoff(self, tally: JobTally) -> JobBackoff:
        if tally.failed_indexes is not None:
            # Each index waits for itself; its pods remember how often it failed.
            return JobBackoff()
        before = self._backoffs.get(tally.job.metadata.uid, JobBackoff())
        return before.after(tally.new_succeeded, tally.new_failed)

    async def _stop(self, tally: JobTally, standing: JobPodCounts) -> Sequence[BaseException]:
        """Delete what is active: the job is about to end."""
        job = tally.job
        done, failures = await _all(tally.active, lambda pod: self._control.delete(job, pod))
        standing.lose(done)
        return failures

    async def _manage(self, tally: JobTally, standing: JobPodCounts) -> Sequence[BaseException]:
        """Delete pods that are too many, or make such as are missing."""
        if surplus := tally.surplus(self._clock.now())[:BURST]:
            done, failures = await _all(surplus, lambda pod: self._discard(tally.job, pod))
            standing.lose(done)
            return failures
        pods = self._missing(tally)
        try:
            await in_growing_batches(len(pods), lambda i: self._control.create(tally.job, pods[i]))
        except Shortfall as shortfall:
            standing.active += shortfall.done
            return [each for each in shortfall.failures if not _is_farewell(each)]
        standing.active += len(pods)
        return ()

    async def _discard(self, job: Job, pod: Pod) -> None:
        """Delete a pod that did nothing wrong: it is counted nowhere."""
        await self._set_free(pod)
        await self._control.delete(job, pod)

    def _missing(self, tally: JobTally) -> list[Pod]:
        """The pods to be made now; those that are to come later are remembered."""
        job, now = tally.job, self._clock.now()
        if not tally.shortage:
            return []
        if tally.shortage > (room := room_for_more(count_waiting(tally.active))):
            record_held_back(self._recorder, job)
        count = min(tally.shortage, room)
        if remaining := self._backoff(tally).remaining(now):
            self._loop.add_later(key_of(job), max(remaining, BATCH))
            return []
        if not is_indexed(job):
            return [new_pod(job)] * count
        waits = {index: tally.index_remaining(index, now) for index in tally.free_indexes(count)}
        if later := [wait for wait in waits.values() if wait]:
            self._loop.add_later(key_of(job), max(min(later), BATCH))
        return [
            new_indexed_pod(job, index, tally.to_replace.get(index))
            for index, wait in waits.items()
            if not wait
        ]

    def _suspension(self, job: Job, status: JobStatus) -> JobStatus:
        """Tell whether the job rests; when it is woken, its time begins anew."""
        now = self._clock.now()
        if job.spec.suspend:
            told = with_condition(status, SUSPENDED, "True", "JobSuspended", "Job suspended", now)
            if told is not status:
                self._recorder.record(job, NORMAL, "Suspended", "Job suspended")
                told = replace(told, startTime="")
            return told
        told = with_condition(status, SUSPENDED, "False", "JobResumed", "Job resumed", now)
        if told is not status:
            self._recorder.record(job, NORMAL, "Resumed", "Job resumed")
            told = replace(told, startTime=format_time(now))
        return told

    # Its accounts.

    async def _account(
        self, job: Job, tally: JobTally, status: JobStatus, outcome: JobOutcome | None
    ) -> None:
        """Count the pods that have ended, and end the job if that is its outcome."""
        tracked = {pod.metadata.uid for pod in tally.pods if is_tracked(pod)}
        named = entry(tally, counted(status, tracked), outcome)
        status = named.status
        if outcome is not None:
            status = ending(status, outcome, self._clock.now())
        backoff = self._backoff(tally)
        job = await self._write(job, status)
        self._backoffs[job.metadata.uid] = backoff
        free, failures = await _all(named.pods, self._set_free)
        status = counted(job.status, tracked - {pod.metadata.uid for pod in free})
        gone = named.whole and is_settled(status) and not status.terminating
        if outcome is not None and gone and not failures:
            status = ended(status, outcome, self._clock.now())
        job = await self._write(job, status)
        if failures:
            raise failures[0]
        if outcome is not None and is_finished(job):
            self._tell_end(job, outcome)

    async def _write(self, job: Job, status: JobStatus) -> Job:
        """Write a status if it says anything new."""
        if same(status, job.status):
            return job
        written = await self._client.update(
            RESOURCE, replace(job, status=status), subresource="status"
        )
        await self._jobs.written(written)
        return written

    async def _set_free(self, pod: Pod) -> None:
        """Take away the finalizer: the pod is accounted for, or never will be."""
        meta = pod.metadata
        if not is_tracked(pod):
            return
        change = {"metadata": {"uid": meta.uid, "$deleteFromPrimitiveList/finalizers": [FINALIZER]}}
        try:
            await self._client.patch(PODS, meta.name, change, meta.namespace, form=STRATEGIC_PATCH)
        except StatusError as error:
            if error.code != 404:
                raise
        await self._pods.until(key_of(pod), lambda now: not _still_held(pod, now))
        if _still_held(pod, self._pods.get(meta.name, meta.namespace)):
            # Counted now, it would be taken for a new one the next time.
            raise TimeoutError(f"pod {meta.name} is still seen with its finalizer")

    def _tell_end(self, job: Job, outcome: JobOutcome) -> None:
        if outcome.final != COMPLETE:
            self._recorder.record(job, WARNING, outcome.reason, outcome.message)
            return
        completions = job.spec.completions
        if completions is not None and job.status.succeeded > completions:
            message = "Too many succeeded pods running after completion count reached"
            self._recorder.record(job, WARNING, "TooManySucceededPods", message)
        self._recorder.record(job, NORMAL, "Completed", "Job completed")


async def _all(
    pods: Sequence[Pod], act: Callable[[Pod], Coroutine[Any, Any, None]]
) -> tuple[list[Pod], list[BaseException]]:
    """Apply an action to all pods; returns the pods for which it succeeded, and the failures.

    Each action waits for its watch event, and each event is compared with all waiting actions,
    so only a few run at once.
    """
    done: list[Pod] = []
    failures: list[BaseException] = []
    for start in range(0, len(pods), AT_ONCE):
        some = pods[start : start + AT_ONCE]
        outcomes = await asyncio.gather(*map(act, some), return_exceptions=True)
        done += [pod for pod, error in zip(some, outcomes, strict=True) if error is None]
        failures += [error for error in outcomes if error is not None]
    return done, failures


def _still_held(pod: Pod, now: Pod | None) -> bool:
    return now is not None and now.metadata.uid == pod.metadata.uid and is_tracked(now)


def _is_foreign(job: Job) -> bool:
    """Whether another controller manages the job."""
    return job.spec.managedBy not in (None, MANAGER)


def _was_told(before: Job, now: Job) -> bool:
    """Whether a person, and not we, changed a job."""
    return before.metadata.generation != now.metadata.generation or (
        is_leaving(before) != is_leaving(now)
    )


def _may_be_wanted(before: Pod | None, now: Pod) -> bool:
    """Whether a pod without an owner may by now be what a job looks for."""
    if before is None or controller_of(before) is not None:
        return True
    return before.metadata.labels != now.metadata.labels


def _begun(job: Job, now: datetime) -> Job:
    """The job with a start, unless it has one or rests."""
    if job.status.startTime or job.spec.suspend:
        return job
    return replace(job, status=replace(job.status, startTime=format_time(now)))


def _is_farewell(error: BaseException) -> bool:
    return isinstance(error, StatusError) and namespaces.is_leaving(error)
