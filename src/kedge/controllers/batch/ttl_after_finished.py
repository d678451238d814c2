"""TtlAfterFinishedController: deletes finished Jobs after their ttlSecondsAfterFinished."""

from datetime import datetime
from typing import Final

from kedge.api.batch_v1.job import RESOURCE
from kedge.api.batch_v1.job_types import Job
from kedge.client.client import Client, DeletionOptions, DeletionPreconditions
from kedge.client.informer import Key
from kedge.controllers.loop import ControllerLoop, together
from kedge.controllers.pod_state import is_leaving
from kedge.controllers.shared_informers import SharedInformers, key_of
from kedge.machinery.clock import Clock
from kedge.machinery.durations import parse_time
from kedge.machinery.errors import StatusError

WORKERS: Final = 5


class TtlAfterFinishedController:
    """Reconciles a Job when it finishes, and again when its TTL expires."""

    def __init__(self, client: Client, shared: SharedInformers, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._jobs = shared.of(RESOURCE)
        self._loop: ControllerLoop[Key] = ControllerLoop(
            "ttl-after-finished", self._reconcile, clock, workers=WORKERS
        )
        self._jobs.follow(self._changed)

    async def run(self) -> None:
        await together(self._loop.run())

    def _changed(self, before: Job | None, now: Job | None) -> None:
        if now is not None and expires_in(now, self._clock.now()) is not None:
            self._loop.add(key_of(now))

    async def _reconcile(self, key: Key) -> None:
        job = self._jobs.get(key.name, key.namespace)
        if job is None or not self._is_due(job):
            return
        try:
            # The cache may lag behind an update that raises the TTL.
            job = await self._client.get(RESOURCE, key.name, key.namespace)
            if self._is_due(job):
                await self._delete(job)
        except StatusError as error:
            if error.code != 404:
                raise

    def _is_due(self, job: Job) -> bool:
        """Whether to delete a job now; if that will be later, it comes up again."""
        left = expires_in(job, self._clock.now())
        if left is None:
            return False
        if left > 0:
            self._loop.add_later(key_of(job), left)
        return left <= 0

    async def _delete(self, job: Job) -> None:
        meta = job.metadata
        options = DeletionOptions(
            propagation_policy="Foreground", preconditions=DeletionPreconditions(uid=meta.uid)
        )
        await self._client.delete(RESOURCE, meta.name, meta.namespace, options=options)


def expires_in(job: Job, now: datetime) -> float | None:
    """Seconds until a finished job is to go; None if it may stay, or is going already."""
    limit = job.spec.ttlSecondsAfterFinished
    if limit is None or is_leaving(job):
        return None
    for each in job.status.conditions:
        if each.type in ("Complete", "Failed") and each.status == "True":
            return limit - (now - parse_time(each.lastTransitionTime)).total_seconds()
    return None
