"""Job: pods that run until a number of them have succeeded."""

from collections.abc import Iterator
from datetime import timedelta

from msgspec.structs import replace

from kedge.api.apps_v1 import workload
from kedge.api.batch_v1.job_status import validate_status
from kedge.api.batch_v1.job_types import (
    INDEXED,
    NON_INDEXED,
    Job,
    JobSpec,
    PodFailurePolicy,
    holds,
)
from kedge.api.batch_v1.job_validation import (
    NAME_LABEL,
    OLD_NAME_LABEL,
    OLD_UID_LABEL,
    UID_LABEL,
    validate,
    validate_update,
)
from kedge.api.core_v1.pod.defaults import default_template
from kedge.api.core_v1.pod.warnings import warn_template
from kedge.api.model import LabelSelector
from kedge.api.presentation import Age, Column, Presentation, age_column, name_column
from kedge.api.resource import STATUS, Resource
from kedge.api.strategy import Strategy, with_change_of_spec
from kedge.machinery import durations

UNLIMITED = 2**31 - 1


def default(obj: Job) -> Job:
    obj = replace(obj, spec=default_spec(obj.spec))
    labels = obj.spec.template.metadata.labels
    if labels and not obj.metadata.labels:
        obj = replace(obj, metadata=replace(obj.metadata, labels=labels))
    return obj


def default_spec(spec: JobSpec) -> JobSpec:
    """A job's spec with all that its writer left out."""
    alone = spec.completions is None and spec.parallelism is None
    policy = spec.podFailurePolicy
    limit = spec.backoffLimit
    if limit is None:
        limit = UNLIMITED if spec.backoffLimitPerIndex is not None else 6
    replacement = spec.podReplacementPolicy
    if replacement is None:
        replacement = "Failed" if policy is not None else "TerminatingOrFailed"
    return replace(
        spec,
        completions=1 if alone else spec.completions,
        parallelism=1 if spec.parallelism is None else spec.parallelism,
        backoffLimit=limit,
        completionMode=NON_INDEXED if spec.completionMode is None else spec.completionMode,
        suspend=bool(spec.suspend),
        podReplacementPolicy=replacement,
        manualSelector=bool(spec.manualSelector),
        podFailurePolicy=_default_policy(policy) if policy is not None else None,
        template=default_template(spec.template),
    )


def _default_policy(policy: PodFailurePolicy) -> PodFailurePolicy:
    rules = []
    for rule in policy.rules:
        patterns = [
            replace(pattern, status=pattern.status or "True") for pattern in rule.onPodConditions
        ]
        rules.append(replace(rule, onPodConditions=patterns or ()))
    return replace(policy, rules=rules or ())


def prepare_for_create(obj: Job) -> Job:
    """A job knows its pods by its own uid, unless its writer wants it otherwise."""
    if obj.spec.manualSelector:
        return obj
    name, uid = obj.metadata.name, obj.metadata.uid
    before = obj.spec.template.metadata.labels
    own = {OLD_NAME_LABEL: name, NAME_LABEL: name, OLD_UID_LABEL: uid, UID_LABEL: uid}
    labels = {**before, **{key: own[key] for key in own if key not in before}}
    template = replace(
        obj.spec.template, metadata=replace(obj.spec.template.metadata, labels=labels)
    )
    selector = obj.spec.selector or LabelSelector()
    selector = replace(selector, matchLabels={UID_LABEL: uid, **selector.matchLabels})
    obj = replace(obj, spec=replace(obj.spec, template=template, selector=selector))
    # A job without labels of its own has those of its pods, the ones just made included.
    if not obj.metadata.labels or obj.metadata.labels == before:
        obj = replace(obj, metadata=replace(obj.metadata, labels=labels))
    return obj


def warn(obj: Job) -> Iterator[str]:
    yield from workload.warn_name(obj)
    yield from warn_spec(obj.spec, "spec")


def warn_spec(spec: JobSpec, path: str) -> Iterator[str]:
    """Sentences about a job's spec, be it in a Job or in a CronJob."""
    many = (spec.completions or 0) > 100_000 and (spec.parallelism or 0) > 10_000
    if spec.completionMode == INDEXED and many:
        yield (
            f"{path}: In Indexed Jobs with a number of completions higher than 10^5 and a "
            "parallelism higher than 10^4, Kubernetes might not be able to track "
            "completedIndexes when a big number of indexes fail"
        )
    yield from warn_template(spec.template, f"{path}.template")


def status_cell(obj: Job) -> str:
    for word in ("Complete", "Failed"):
        if holds(obj, word):
            return word
    if obj.metadata.deletionTimestamp:
        return "Terminating"
    for word in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if holds(obj, word):
            return word
    return "Running"


def completions_cell(obj: Job) -> str:
    done = obj.status.succeeded
    if obj.spec.completions is not None:
        return f"{done}/{obj.spec.completions}"
    at_once = obj.spec.parallelism or 0
    return f"{done}/1 of {at_once}" if at_once > 1 else f"{done}/1"


def duration_cell(obj: Job) -> object:
    start, end = obj.status.startTime, obj.status.completionTime
    if not start:
        return ""
    if not end:
        return Age(start)
    took = durations.parse_time(end) - durations.parse_time(start)
    return durations.human_age(took // timedelta(seconds=1))


RESOURCE: Resource[Job] = Resource(
    type=Job,
    group="batch",
    plural="jobs",
    subresources=[STATUS],
    strategy=Strategy(
        orphans_dependents=True,
        orphan_warning=(
            "child pods are preserved by default when jobs are deleted; set "
            "propagationPolicy=Background to remove them or set propagationPolicy=Orphan to "
            "suppress this warning"
        ),
        default=default,
        prepare_for_create=prepare_for_create,
        validate=validate,
        validate_update=validate_update,
        validate_status=validate_status,
        warnings=warn,
        warns_on_update=with_change_of_spec,
    ),
    presentation=Presentation(
        categories=["all"],
        fields={"status.successful": lambda obj: str(obj.status.succeeded)},
        columns=[
            name_column(),
            Column(name="Status", description="How the job fares.", cell=status_cell),
            Column(
                name="Completions",
                description="How many pods have succeeded, of those that must.",
                cell=completions_cell,
            ),
            Column(
                name="Duration", description="How long the job took so far.", cell=duration_cell
            ),
            age_column(),
            *workload.template_columns(
                lambda obj: obj.spec.template, lambda obj: obj.spec.selector
            ),
        ],
    ),
)
