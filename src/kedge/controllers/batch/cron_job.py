"""CronJobController: creates a Job whenever a CronJob is due, and deletes old Jobs."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, tzinfo
from typing import Final

from msgspec.structs import replace

from kedge.api.apps_v1.workload import same
from kedge.api.batch_v1.cron_job import RESOURCE, CronJob, CronJobStatus
from kedge.api.batch_v1.job import RESOURCE as JOBS
from kedge.api.batch_v1.job_types import Job, holds, is_finished
from kedge.api.batch_v1.schedule import Schedule, parse_schedule
from kedge.api.core_v1.references import ObjectReference
from kedge.api.model import ObjectMeta
from kedge.client.client import Client, DeletionOptions, DeletionPreconditions
from kedge.client.events import NORMAL, WARNING, Recorder, reference_to
from kedge.client.informer import Key
from kedge.controllers import namespaces
from kedge.controllers.batch.cron_times import MANY, MissedRuns, missed, next_due
from kedge.controllers.loop import ControllerLoop, together
from kedge.controllers.pod_control import owned_by
from kedge.controllers.pod_state import is_leaving
from kedge.controllers.shared_informers import SharedInformers, controller_of, key_of
from kedge.machinery.clock import Clock
from kedge.machinery.durations import format_time, moved, parse_time
from kedge.machinery.errors import StatusError

COMPONENT: Final = "cronjob-controller"
SCHEDULED: Final = "batch.kubernetes.io/cronjob-scheduled-timestamp"
WORKERS: Final = 5
LATE: Final = 0.1
"""Seconds after its moment at which a job is made: clocks are set a little back now and then."""


class CronJobController:
    """Reconciles CronJobs."""

    def __init__(self, client: Client, shared: SharedInformers, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._cron_jobs = shared.of(RESOURCE)
        self._jobs = shared.of(JOBS)
        self._recorder = Recorder(client, clock, COMPONENT)
        self._loop: ControllerLoop[Key] = ControllerLoop(
            "cronjob", self._reconcile, clock, workers=WORKERS
        )
        self._cron_jobs.follow(self._cron_job_changed)
        self._jobs.follow(self._job_changed)

    async def run(self) -> None:
        await together(self._loop.run(), self._recorder.run())

    def _cron_job_changed(self, before: CronJob | None, now: CronJob | None) -> None:
        if now is None:
            return
        if before is None or _when(before) == _when(now):
            self._loop.add(key_of(now))
            return
        # Times of the new schedule before it was set do not count as missed.
        try:
            schedule, zone = _schedule(now), _zone(now)
        except (ValueError, LookupError, OSError):
            self._loop.add(key_of(now))
        else:
            self._look_again(now, schedule, zone, since=_since(now))

    def _job_changed(self, before: Job | None, now: Job | None) -> None:
        for job in filter(None, (before, now)):
            owner = controller_of(job)
            if owner is None or owner.kind != RESOURCE.kind:
                continue
            cron_job = self._cron_jobs.get(owner.name, job.metadata.namespace)
            if cron_job is not None and cron_job.metadata.uid == owner.uid:
                self._loop.add(key_of(cron_job))

    # One of them.

    async def _reconcile(self, key: Key) -> None:
        cron_job = self._cron_jobs.get(key.name, key.namespace)
        if cron_job is None:
            return
        jobs = sorted(self._jobs.owned(cron_job.metadata.uid), key=lambda job: job.metadata.name)
        status = await self._clear_away(cron_job, cron_job.status, jobs)
        status = await self._take_stock(cron_job, status, jobs)
        failure: StatusError | None = None
        if not is_leaving(cron_job):
            try:
                status = await self._start_if_due(cron_job, status)
            except StatusError as error:
                failure = error
        if not same(status, cron_job.status):
            changed = replace(cron_job, status=status)
            written = await self._client.update(RESOURCE, changed, subresource="status")
            await self._cron_jobs.written(written)
        if failure is not None and not namespaces.is_leaving(failure):
            raise failure

    async def _take_stock(
        self, cron_job: CronJob, status: CronJobStatus, jobs: Sequence[Job]
    ) -> CronJobStatus:
        """See which jobs have ended, and which are there or gone without our doing."""
        there = {job.metadata.uid for job in jobs}
        listed = {each.uid for each in status.active}
        for job in jobs:
            name, uid = job.metadata.name, job.metadata.uid
            if not is_finished(job):
                if uid not in listed:
                    message = f"Saw a job that the controller did not create or forgot: {name}"
                    self._recorder.record(cron_job, WARNING, "UnexpectedJob", message)
                continue
            if uid in listed:
                end = "Complete" if holds(job, "Complete") else "Failed"
                message = f"Saw completed job: {name}, condition: {end}"
                self._recorder.record(cron_job, NORMAL, "SawCompletedJob", message)
                status = _without(status, uid)
            if holds(job, "Complete") and job.status.completionTime > status.lastSuccessfulTime:
                status = replace(status, lastSuccessfulTime=job.status.completionTime)
        for each in status.active:
            if each.uid not in there and await self._is_gone(each):
                message = f"Active job went missing: {each.name}"
                self._recorder.record(cron_job, NORMAL, "MissingJob", message)
                status = _without(status, each.uid)
        return status

    async def _is_gone(self, job: ObjectReference) -> bool:
        try:
            await self._client.get(JOBS, job.name, job.namespace)
        except StatusError as error:
            if error.code == 404:
                return True
            raise
        return False

    async def _start_if_due(self, cron_job: CronJob, status: CronJobStatus) -> CronJobStatus:
        spec, now = cron_job.spec, self._clock.now()
        try:
            zone = _zone(cron_job)
        except (ValueError, LookupError, OSError):
            message = f'invalid timeZone: "{spec.timeZone}": unknown time zone {spec.timeZone}'
            self._recorder.record(cron_job, WARNING, "UnknownTimeZone", message)
            return status
        if spec.suspend:
            return status
        try:
            schedule = _schedule(cron_job)
        except ValueError as error:
            message = f'unparseable schedule: "{spec.schedule}" : {error}'
            self._recorder.record(cron_job, WARNING, "UnparseableSchedule", message)
            return status
        try:
            due = missed(schedule, _not_before(cron_job, now), now, zone)
        except ValueError as error:
            message = f"invalid schedule: {spec.schedule} : {error}"
            self._recorder.record(cron_job, WARNING, "InvalidSchedule", message)
            return status
        moment = self._to_start(cron_job, status, due, now)
        if moment is not None:
            status = await self._start(cron_job, status, moment, zone)
        since = parse_time(status.lastScheduleTime) if status.lastScheduleTime else None
        self._look_again(cron_job, schedule, zone, since=since or _since(cron_job))
        return status

    def _look_again(
        self, cron_job: CronJob, schedule: Schedule, zone: tzinfo | None, *, since: datetime
    ) -> None:
        now = self._clock.now()
        moment = next_due(schedule, since, now, zone)
        if moment is not None:
            self._loop.add_later(key_of(cron_job), (moment - now).total_seconds() + LATE)

    def _to_start(
        self, cron_job: CronJob, status: CronJobStatus, due: MissedRuns, now: datetime
    ) -> datetime | None:
        """The moment for which a job is to be made, if there is one and nothing speaks against."""
        moment = due.latest
        if moment is None:
            return None
        if due.times > MANY:
            message = (
                "too many missed start times. Set or decrease .spec.startingDeadlineSeconds "
                "or check clock skew"
            )
            self._recorder.record(cron_job, WARNING, "TooManyMissedTimes", message)
        limit = cron_job.spec.startingDeadlineSeconds
        if limit is not None and moved(moment, limit) < now:
            said = moment.astimezone(UTC).strftime("%a, %d %b %Y %H:%M:%S %z")
            message = f"Missed scheduled time to start a job: {said}"
            self._recorder.record(cron_job, WARNING, "MissSchedule", message)
            return None
        names = {each.name for each in status.active}
        if _job_name(cron_job, moment) in names or status.lastScheduleTime == format_time(moment):
            return None
        if cron_job.spec.concurrencyPolicy == "Forbid" and status.active:
            message = (
                "Not starting job because prior execution is running and concurrency policy "
                "is Forbid"
            )
            self._recorder.record(cron_job, NORMAL, "JobAlreadyActive", message)
            return None
        return moment

    async def _start(
        self, cron_job: CronJob, status: CronJobStatus, moment: datetime, zone: tzinfo | None
    ) -> CronJobStatus:
        if cron_job.spec.concurrencyPolicy == "Replace":
            for each in status.active:
                status = await self._delete(cron_job, status, each)
        job = await self._make(cron_job, _new_job(cron_job, moment, zone))
        if job is None or any(each.uid == job.metadata.uid for each in status.active):
            return status
        return replace(
            status,
            active=[*status.active, reference_to(job)],
            lastScheduleTime=format_time(moment),
        )

    async def _make(self, cron_job: CronJob, job: Job) -> Job | None:
        """The job of a moment, made before if need be; its name keeps it from being made twice."""
        try:
            made = await self._client.create(JOBS, job)
        except StatusError as error:
            if error.reason == "AlreadyExists":
                found = await self._client.get(JOBS, job.metadata.name, job.metadata.namespace)
                owner = controller_of(found)
                return found if owner and owner.uid == cron_job.metadata.uid else None
            if not namespaces.is_leaving(error):
                message = f"Error creating job: {error}"
                self._recorder.record(cron_job, WARNING, "FailedCreate", message)
            raise
        message = f"Created job {made.metadata.name}"
        self._recorder.record(cron_job, NORMAL, "SuccessfulCreate", message)
        await self._jobs.written(made)
        return made

    async def _clear_away(
        self, cron_job: CronJob, status: CronJobStatus, jobs: Iterable[Job]
    ) -> CronJobStatus:
        """Delete the oldest finished jobs above the history limits."""
        spec = cron_job.spec
        done = [job for job in jobs if not is_leaving(job)]
        for condition, limit in (
            ("Complete", spec.successfulJobsHistoryLimit),
            ("Failed", spec.failedJobsHistoryLimit),
        ):
            ended = sorted((job for job in done if holds(job, condition)), key=_age)
            for job in ended[: max(len(ended) - limit, 0)] if limit is not None else ():
                # One that cannot be deleted, for which there is an event, holds up nothing.
                with suppress(StatusError):
                    status = await self._delete(cron_job, status, reference_to(job))
        return status

    async def _delete(
        self, cron_job: CronJob, status: CronJobStatus, job: ObjectReference
    ) -> CronJobStatus:
        options = DeletionOptions(
            propagation_policy="Background", preconditions=DeletionPreconditions(uid=job.uid)
        )
        try:
            await self._client.delete(JOBS, job.name, job.namespace, options=options)
        except StatusError as error:
            if error.code != 404:
                message = f"Deleted job: {error}"
                self._recorder.record(cron_job, WARNING, "FailedDelete", message)
                raise
        else:
            message = f"Deleted job {job.name}"
            self._recorder.record(cron_job, NORMAL, "SuccessfulDelete", message)
        await self._jobs.until(
            Key(job.namespace, job.name),
            lambda now: now is None or now.metadata.uid != job.uid or is_leaving(now),
        )
        return _without(status, job.uid)


def _when(cron_job: CronJob) -> tuple[str, str | None]:
    return cron_job.spec.schedule, cron_job.spec.timeZone


def _schedule(cron_job: CronJob) -> Schedule:
    return parse_schedule(cron_job.spec.schedule)


def _zone(cron_job: CronJob) -> tzinfo | None:
    if cron_job.spec.timeZone is None:
        return None
    # Not above: few clusters have jobs with a time zone.
    from zoneinfo import ZoneInfo

    return ZoneInfo(cron_job.spec.timeZone)


def _since(cron_job: CronJob) -> datetime:
    """The last moment that was seen to; before the first, when the CronJob was made."""
    return parse_time(cron_job.status.lastScheduleTime or cron_job.metadata.creationTimestamp)


def _not_before(cron_job: CronJob, now: datetime) -> datetime:
    """Return the time up to which due times are ignored."""
    limit = cron_job.spec.startingDeadlineSeconds
    if limit is None:
        return _since(cron_job)
    return max(_since(cron_job), moved(now, -limit))


def _age(job: Job) -> tuple[bool, str, str]:
    return not job.status.startTime, job.status.startTime, job.metadata.name


def _without(status: CronJobStatus, uid: str) -> CronJobStatus:
    return replace(status, active=[each for each in status.active if each.uid != uid])


def _job_name(cron_job: CronJob, moment: datetime) -> str:
    return f"{cron_job.metadata.name}-{int(moment.timestamp()) // 60}"


def _new_job(cron_job: CronJob, moment: datetime, zone: tzinfo | None) -> Job:
    template = cron_job.spec.jobTemplate
    return Job(
        metadata=ObjectMeta(
            name=_job_name(cron_job, moment),
            namespace=cron_job.metadata.namespace,
            labels=template.metadata.labels,
            annotations={**template.metadata.annotations, SCHEDULED: _stamp(moment, zone)},
            ownerReferences=[owned_by(RESOURCE, cron_job)],
        ),
        spec=template.spec,
    )


def _stamp(moment: datetime, zone: tzinfo | None) -> str:
    """A moment as the clocks of a zone show it, and how far they are off."""
    text = moment.astimezone(zone or UTC).isoformat("T", "seconds")
    return f"{text[:-6]}Z" if text.endswith("+00:00") else text
