"""CronJob: a Job made again and again, by the clock."""

import re
from collections.abc import Iterator, Sequence

from msgspec import field
from msgspec.structs import replace

from kedge.api import rules
from kedge.api.apps_v1 import workload
from kedge.api.batch_v1.job import default_spec, warn_spec
from kedge.api.batch_v1.job_types import JobSpec
from kedge.api.batch_v1.job_validation import validate_spec
from kedge.api.batch_v1.schedule import parse_schedule
from kedge.api.core_v1.references import ObjectReference
from kedge.api.model import Int32, Model, Object, ObjectMeta, Time
from kedge.api.presentation import Age, Column, Presentation, age_column, name_column
from kedge.api.resource import STATUS, Resource
from kedge.api.strategy import Strategy, with_change_of_spec
from kedge.machinery.errors import FieldError

LONGEST_NAME = 52
"""Names of jobs end in a dash and ten digits and have 63 characters at most."""
_ZONE_PART = re.compile(r"[A-Za-z._0-9+][A-Za-z._0-9+-]{0,13}", re.ASCII)


class JobTemplateSpec(Model):
    """The template of new jobs."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    """Labels and annotations of the jobs."""
    spec: JobSpec = field(default_factory=JobSpec)
    """The work that is wanted."""


class CronJobSpec(Model):
    """When jobs are due, and what they look like."""

    __required__ = ("schedule", "jobTemplate")

    schedule: str = field(default_factory=str)
    """When jobs are due, in the form of cron."""
    timeZone: str | None = None
    """Name of the time zone of the schedule; without it, the controller's."""
    startingDeadlineSeconds: int | None = None
    """How late a job may start; later than that it is missed."""
    concurrencyPolicy: str = ""
    """The policy if the last job still runs: Allow, Forbid or Replace. Default Allow."""
    suspend: bool | None = None
    """Whether no jobs are due for now. Default false."""
    jobTemplate: JobTemplateSpec = field(default_factory=JobTemplateSpec)
    """The template of new jobs."""
    successfulJobsHistoryLimit: Int32 | None = None
    """How many jobs that succeeded are kept. Default 3."""
    failedJobsHistoryLimit: Int32 | None = None
    """How many jobs that failed are kept. Default 1."""


class CronJobStatus(Model):
    """The jobs there are."""

    active: Sequence[ObjectReference] = ()
    """Jobs that run."""
    lastScheduleTime: Time = ""
    """When a job was last due and made."""
    lastSuccessfulTime: Time = ""
    """When a job last succeeded."""


class CronJob(Object):
    """Makes a Job again and again, by the clock."""

    __required__ = ("spec",)

    spec: CronJobSpec = field(default_factory=CronJobSpec)
    """When jobs are due, and what they look like."""
    status: CronJobStatus = field(default_factory=CronJobStatus)
    """The jobs there are."""


def default(obj: CronJob) -> CronJob:
    spec = obj.spec
    kept, failed = spec.successfulJobsHistoryLimit, spec.failedJobsHistoryLimit
    spec = replace(
        spec,
        concurrencyPolicy=spec.concurrencyPolicy or "Allow",
        suspend=bool(spec.suspend),
        successfulJobsHistoryLimit=3 if kept is None else kept,
        failedJobsHistoryLimit=1 if failed is None else failed,
        jobTemplate=_default_job(spec.jobTemplate),
    )
    return replace(obj, spec=spec)


def _default_job(template: JobTemplateSpec) -> JobTemplateSpec:
    """Only what is part of the pods is said here; the rest is said when a job is made."""
    pods = default_spec(template.spec)
    spec = replace(template.spec, template=pods.template, podFailurePolicy=pods.podFailurePolicy)
    return replace(template, spec=spec)


def validate(obj: CronJob) -> Iterator[FieldError]:
    spec = obj.spec
    if not spec.schedule:
        yield FieldError.required("spec.schedule")
    else:
        yield from _schedule(spec.schedule, "spec.schedule")
    yield from rules.nonnegative("spec.startingDeadlineSeconds", spec.startingDeadlineSeconds)
    if spec.timeZone is not None:
        yield from _time_zone(spec.timeZone, "spec.timeZone")
    policies = ("Allow", "Forbid", "Replace")
    yield from rules.one_of("spec.concurrencyPolicy", spec.concurrencyPolicy, policies)
    yield from _job(spec.jobTemplate.spec, "spec.jobTemplate.spec")
    for word in ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        yield from rules.nonnegative(f"spec.{word}", getattr(spec, word))
    if len(obj.metadata.name) > LONGEST_NAME:
        why = f"must be no more than {LONGEST_NAME} characters"
        yield FieldError.invalid("metadata.name", obj.metadata.name, why)


def _schedule(schedule: str, path: str) -> Iterator[FieldError]:
    try:
        parse_schedule(schedule)
    except ValueError as error:
        yield FieldError.invalid(path, schedule, str(error))
    if "TZ" in schedule:
        why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        yield FieldError.invalid(path, schedule, why)


def _time_zone(zone: str, path: str) -> Iterator[FieldError]:
    if not zone:
        yield FieldError.invalid(path, zone, "timeZone must be nil or non-empty string")
        return
    parts = zone.split("/")
    if any(part in (".", "..") or not _ZONE_PART.fullmatch(part) for part in parts):
        yield FieldError.invalid(path, zone, f"unknown time zone {zone}")
        return
    if zone.lower() == "local":
        why = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        yield FieldError.invalid(path, zone, why)
    if not _is_known(zone):
        yield FieldError.invalid(path, zone, f"unknown time zone {zone}")


def _is_known(zone: str) -> bool:
    # Not above: few clusters have jobs with a time zone.
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        return False
    return True


def _job(spec: JobSpec, path: str) -> Iterator[FieldError]:
    yield from validate_spec(spec, path)
    if spec.selector is not None:
        why = "`selector` will be auto-generated"
        yield FieldError.invalid(f"{path}.selector", spec.selector, why)
    if spec.manualSelector:
        yield FieldError.not_supported(f"{path}.manualSelector", True, ("nil", "false"))


def warn(obj: CronJob) -> Iterator[str]:
    yield from workload.warn_name(obj)
    yield from warn_spec(obj.spec.jobTemplate.spec, "spec.jobTemplate.spec")


def last_schedule_cell(obj: CronJob) -> object:
    last = obj.status.lastScheduleTime
    return Age(last) if last else workload.NONE


RESOURCE: Resource[CronJob] = Resource(
    type=CronJob,
    group="batch",
    plural="cronjobs",
    subresources=[STATUS],
    strategy=Strategy(
        default=default, validate=validate, warnings=warn, warns_on_update=with_change_of_spec
    ),
    presentation=Presentation(
        short_names=["cj"],
        categories=["all"],
        columns=[
            name_column(),
            Column(
                name="Schedule",
                description="When jobs are due.",
                cell=lambda obj: obj.spec.schedule,
            ),
            Column(
                name="Timezone",
                description="The time zone of the schedule.",
                cell=lambda obj: obj.spec.timeZone or workload.NONE,
            ),
            Column(
                name="Suspend",
                type="boolean",
                description="Whether no jobs are due for now.",
                cell=lambda obj: "True" if obj.spec.suspend else "False",
            ),
            Column(
                name="Active",
                type="integer",
                description="How many jobs run.",
                cell=lambda obj: len(obj.status.active),
            ),
            Column(
                name="Last Schedule",
                description="When a job was last due and made.",
                cell=last_schedule_cell,
            ),
            age_column(),
            *workload.template_columns(
                lambda obj: obj.spec.jobTemplate.spec.template,
                lambda obj: obj.spec.jobTemplate.spec.selector,
            ),
        ],
    ),
)
