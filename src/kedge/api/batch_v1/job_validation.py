"""Validation of a Job's spec and of its updates."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from kedge.api import rules
from kedge.api.apps_v1 import workload
from kedge.api.batch_v1 import indexes
from kedge.api.batch_v1.job_types import (
    INDEXED,
    NON_INDEXED,
    Job,
    JobSpec,
    PodFailurePolicyOnExitCodesRequirement,
    PodFailurePolicyOnPodConditionsPattern,
    PodFailurePolicyRule,
    SuccessPolicyRule,
    holds,
)
from kedge.api.core_v1.pod.affinity import Affinity
from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.spec import PodSpec, PodTemplateSpec
from kedge.api.core_v1.pod.validation import validate_template
from kedge.api.internal_forms import internal_form
from kedge.api.label_selector import matches, validate_label_selector
from kedge.machinery import names
from kedge.machinery.errors import FieldError

NAME_LABEL = "batch.kubernetes.io/job-name"
UID_LABEL = "batch.kubernetes.io/controller-uid"
OLD_NAME_LABEL = "job-name"
OLD_UID_LABEL = "controller-uid"

MOST_INDEXED = 100_000
MANY_COMPLETIONS = 100_000
MOST_WITH_MANY_COMPLETIONS = 10_000
MOST_RULES = 20
MOST_EXIT_CODES = 255
MOST_PATTERNS = 20
LONGEST_MANAGER = 63
LONGEST_INDEXES = 64 * 1024

_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_STATUSES = ("False", "True", "Unknown")
_OPERATORS = ("In", "NotIn")


def validate(job: Job) -> Iterator[FieldError]:
    yield from _generated_selector(job)
    yield from validate_spec(job.spec, "spec")
    yield from _selector(job.spec)
    spec = job.spec
    if spec.completionMode == INDEXED and spec.completions:
        hostname = f"{job.metadata.name}-{spec.completions - 1}"
        if names.dns_label(hostname):
            why = f"will not able to create pod with invalid DNS label: {hostname}"
            yield FieldError.invalid("metadata.name", job.metadata.name, why)


def _generated_selector(job: Job) -> Iterator[FieldError]:
    """Unless the writer answers for it, the selector is made of the job's own name and uid."""
    if job.spec.manualSelector or job.spec.selector is None:
        return
    if not job.metadata.uid:
        yield FieldError.required("metadata.uid")
    expected = {
        OLD_UID_LABEL: job.metadata.uid,
        OLD_NAME_LABEL: job.metadata.name,
        UID_LABEL: job.metadata.uid,
        NAME_LABEL: job.metadata.name,
    }
    labels = job.spec.template.metadata.labels
    for key, value in expected.items():
        at = f"spec.template.metadata.labels[{key}]"
        if key not in labels:
            yield FieldError.required(at, f"must be '{value}'")
        elif labels[key] != value:
            yield FieldError.invalid(at, labels, f"must be '{value}'")
    if workload.is_readable(job.spec.selector) and not matches(job.spec.selector, expected):
        yield FieldError.invalid(
            "spec.selector", job.spec.selector, "`selector` not auto-generated"
        )


def _selector(spec: JobSpec) -> Iterator[FieldError]:
    if spec.selector is None:
        yield FieldError.required("spec.selector")
    yield from validate_label_selector(spec.selector, "spec.selector")
    if workload.is_readable(spec.selector) and not workload.selects(spec.selector, spec.template):
        labels = spec.template.metadata.labels
        at = "spec.template.metadata.labels"
        yield FieldError.invalid(at, labels or None, workload.UNMATCHED)


def validate_spec(spec: JobSpec, path: str) -> Iterator[FieldError]:
    """Everything wrong with a spec but its selector, which a CronJob's template does not have."""
    for word in (
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ):
        yield from rules.nonnegative(f"{path}.{word}", getattr(spec, word))
    if spec.maxFailedIndexes is not None and spec.backoffLimitPerIndex is None:
        why = "when maxFailedIndexes is specified"
        yield FieldError.required(f"{path}.backoffLimitPerIndex", why)
    if spec.managedBy is not None:
        yield from _manager(spec.managedBy, f"{path}.managedBy")
    yield from _completion_mode(spec, path)
    yield from _policies(spec, path)
    yield from validate_template(spec.template, f"{path}.template")
    yield from _restart_policy(spec, f"{path}.template.spec.restartPolicy")


def _manager(manager: str, path: str) -> Iterator[FieldError]:
    if not manager:
        yield FieldError.required(path)
    else:
        yield from rules.problems(path, manager, names.domain_prefixed_path(manager))
    if len(manager) > LONGEST_MANAGER:
        yield FieldError.too_long(path, LONGEST_MANAGER)


def _completion_mode(spec: JobSpec, path: str) -> Iterator[FieldError]:
    mode = spec.completionMode
    if mode not in (None, NON_INDEXED, INDEXED):
        yield FieldError.not_supported(f"{path}.completionMode", mode, (NON_INDEXED, INDEXED))
    if mode == INDEXED:
        yield from _indexed(spec, path)
    if mode in (None, NON_INDEXED):
        for word in ("backoffLimitPerIndex", "maxFailedIndexes"):
            value = getattr(spec, word)
            if value is not None:
                why = "requires indexed completion mode"
                yield FieldError.invalid(f"{path}.{word}", value, why)


def _indexed(spec: JobSpec, path: str) -> Iterator[FieldError]:
    failures, wanted = spec.maxFailedIndexes, spec.completions
    parallelism = spec.parallelism or 0
    if wanted is None:
        yield FieldError.required(f"{path}.completions", "when completion mode is Indexed")
    if parallelism > MOST_INDEXED:
        why = f"must be less than or equal to {MOST_INDEXED} when completion mode is Indexed"
        yield FieldError.invalid(f"{path}.parallelism", parallelism, why)
    if wanted is not None and failures is not None and failures > wanted:
        why = "must be less than or equal to completions"
        yield FieldError.invalid(f"{path}.maxFailedIndexes", failures, why)
    if failures is not None and failures > MOST_INDEXED:
        why = f"must be less than or equal to {MOST_INDEXED}"
        yield FieldError.invalid(f"{path}.maxFailedIndexes", failures, why)
    if (wanted or 0) > MANY_COMPLETIONS and spec.backoffLimitPerIndex is not None:
        few = (
            f"must be less than or equal to {MOST_WITH_MANY_COMPLETIONS} when completions are "
            f"above {MANY_COMPLETIONS} and used with backoff limit per index"
        )
        if failures is None:
            why = f"must be specified when completions is above {MANY_COMPLETIONS}"
            yield FieldError.required(f"{path}.maxFailedIndexes", why)
        if parallelism > MOST_WITH_MANY_COMPLETIONS:
            yield FieldError.invalid(f"{path}.parallelism", parallelism, few)
        if failures is not None and failures > MOST_WITH_MANY_COMPLETIONS:
            yield FieldError.invalid(f"{path}.maxFailedIndexes", failures, few)


def _restart_policy(spec: JobSpec, path: str) -> Iterator[FieldError]:
    policy = spec.template.spec.restartPolicy
    if policy in ("", "Always"):
        yield FieldError.required(path, 'valid values: "OnFailure", "Never"')
    elif policy not in ("OnFailure", "Never"):
        yield FieldError.not_supported(path, policy, ("OnFailure", "Never"))
    elif spec.podFailurePolicy is not None and policy != "Never":
        why = 'only "Never" is supported when podFailurePolicy is specified'
        yield FieldError.invalid(path, policy, why)


def _policies(spec: JobSpec, path: str) -> Iterator[FieldError]:
    if spec.podFailurePolicy is not None:
        at = f"{path}.podFailurePolicy.rules"
        found = spec.podFailurePolicy.rules
        if len(found) > MOST_RULES:
            yield FieldError.too_many(at, len(found), MOST_RULES)
        for i, rule in enumerate(found):
            yield from _failure_rule(rule, spec, f"{at}[{i}]")
    if spec.successPolicy is not None:
        at = f"{path}.successPolicy"
        if spec.completionMode != INDEXED:
            why = "requires indexed completion mode"
            yield FieldError.invalid(at, spec.successPolicy, why)
        else:
            yield from _success_rules(spec.successPolicy.rules, spec, f"{at}.rules")
    replacement = spec.podReplacementPolicy
    allowed = (
        ("Failed",) if spec.podFailurePolicy is not None else ("Failed", "TerminatingOrFailed")
    )
    if replacement is not None and replacement not in allowed:
        yield FieldError.not_supported(f"{path}.podReplacementPolicy", replacement, allowed)


def _valid_values(allowed: Sequence[str]) -> str:
    quoted = " ".join(f'"{each}"' for each in allowed)
    return f"valid values: [{quoted}]"


def _one_of(path: str, value: str, allowed: Sequence[str]) -> Iterator[FieldError]:
    if not value:
        yield FieldError.required(path, _valid_values(allowed))
    elif value not in allowed:
        yield FieldError.not_supported(path, value, allowed)


def _failure_rule(rule: PodFailurePolicyRule, spec: JobSpec, path: str) -> Iterator[FieldError]:
    yield from _one_of(f"{path}.action", rule.action, _ACTIONS)
    if rule.action == "FailIndex" and spec.backoffLimitPerIndex is None:
        why = "requires the backoffLimitPerIndex to be set"
        yield FieldError.invalid(f"{path}.action", rule.action, why)
    if rule.onExitCodes is not None:
        pod = spec.template.spec
        known = {each.name for each in (*pod.containers, *pod.initContainers)}
        yield from _exit_codes(rule.onExitCodes, known, f"{path}.onExitCodes")
    if rule.onPodConditions:
        yield from _conditions(rule.onPodConditions, f"{path}.onPodConditions")
    if rule.onExitCodes is not None and rule.onPodConditions:
        why = "specifying both OnExitCodes and OnPodConditions is not supported"
        yield without_value(path, why)
    if rule.onExitCodes is None and not rule.onPodConditions:
        yield without_value(path, "specifying one of OnExitCodes and OnPodConditions is required")


def without_value(path: str, why: str) -> FieldError:
    """An error about something too large or too vague to quote."""
    return FieldError("FieldValueInvalid", path, f"Invalid value: {why}")


def _conditions(
    patterns: Sequence[PodFailurePolicyOnPodConditionsPattern], path: str
) -> Iterator[FieldError]:
    if len(patterns) > MOST_PATTERNS:
        yield FieldError.too_many(path, len(patterns), MOST_PATTERNS)
    for i, pattern in enumerate(patterns):
        found = names.qualified_name(pattern.type)
        yield from rules.problems(f"{path}[{i}].type", pattern.type, found)
        yield from _one_of(f"{path}[{i}].status", pattern.status, _STATUSES)


def _exit_codes(
    asked: PodFailurePolicyOnExitCodesRequirement, known: set[str], path: str
) -> Iterator[FieldError]:
    yield from _one_of(f"{path}.operator", asked.operator, _OPERATORS)
    if asked.containerName is not None and asked.containerName not in known:
        why = "must be one of the container or initContainer names in the pod template"
        yield FieldError.invalid(f"{path}.containerName", asked.containerName, why)
    values, at = list(asked.values), f"{path}.values"
    if not values:
        yield FieldError.invalid(at, values, "at least one value is required")
    elif len(values) > MOST_EXIT_CODES:
        yield FieldError.too_many(at, len(values), MOST_EXIT_CODES)
    repeated = set(rules.repeated(values))
    for i, value in enumerate(values):
        if asked.operator == "In" and value == 0:
            yield FieldError.invalid(f"{at}[{i}]", value, "must not be 0 for the In operator")
        if i in repeated:
            yield FieldError.duplicate(f"{at}[{i}]", value)
    if values != sorted(values):
        yield FieldError.invalid(at, values, "must be ordered")


def _success_rules(
    found: Sequence[SuccessPolicyRule], spec: JobSpec, path: str
) -> Iterator[FieldError]:
    if not found:
        why = "at least one rules must be specified when the successPolicy is specified"
        yield FieldError.required(path, why)
    if len(found) > MOST_RULES:
        yield FieldError.too_many(path, len(found), MOST_RULES)
    for i, rule in enumerate(found):
        yield from _success_rule(rule, spec.completions or 0, f"{path}[{i}]")


def _success_rule(rule: SuccessPolicyRule, completions: int, path: str) -> Iterator[FieldError]:
    if rule.succeededCount is None and rule.succeededIndexes is None:
        why = "at least one of succeededCount or succeededIndexes must be specified"
        yield FieldError.required(path, why)
    total = 0
    if rule.succeededIndexes is not None:
        at = f"{path}.succeededIndexes"
        if len(rule.succeededIndexes) > LONGEST_INDEXES:
            yield FieldError.too_long(at, LONGEST_INDEXES)
        try:
            total = indexes.count(indexes.parse(rule.succeededIndexes, completions))
        except ValueError as error:
            why = f"error parsing succeededIndexes: {error}"
            yield FieldError.invalid(at, rule.succeededIndexes, why)
    if rule.succeededCount is not None:
        at, wanted = f"{path}.succeededCount", rule.succeededCount
        most = "must be less than or equal to"
        yield from rules.nonnegative(at, wanted)
        if wanted > completions:
            why = f"{most} {completions} (the number of specified completions)"
            yield FieldError.invalid(at, wanted, why)
        if rule.succeededIndexes is not None and wanted > total:
            listed = "(the number of indexes in the specified succeededIndexes field)"
            yield FieldError.invalid(at, wanted, f"{most} {total} {listed}")


def validate_update(new: Job, old: Job) -> Iterator[FieldError]:
    # Upstream validates the spec of an update twice, and lists its errors twice.
    yield from validate_spec(new.spec, "spec")
    yield from _selector(new.spec)
    yield from _completions(new.spec, old.spec)
    yield from workload.unchanged("spec.selector", new.spec.selector, old.spec.selector)
    yield from _template(new, old)
    for word in (
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ):
        now, before = getattr(new.spec, word), getattr(old.spec, word)
        yield from workload.unchanged(f"spec.{word}", now, before)


def _completions(new: JobSpec, old: JobSpec) -> Iterator[FieldError]:
    """An indexed job may grow and shrink, as long as all its pods run at once."""
    if new.completionMode != INDEXED:
        yield from rules.unchanged("spec.completions", new.completions, old.completions)
    elif new.completions not in (None, old.completions, new.parallelism):
        why = "can only be modified in tandem with spec.parallelism"
        yield FieldError.invalid("spec.completions", new.completions, why)


def _template(new: Job, old: Job) -> Iterator[FieldError]:
    now, before = new.spec.template, old.spec.template
    if not may_change_template(old):
        yield from _unchanged("spec.template", now, before, "core.PodTemplateSpec")
    else:
        pod = _with_resources(_with_scheduling(before, now).spec, now.spec)
        yield from _unchanged("spec.template.spec", now.spec, pod, "core.PodSpec")


def _unchanged(path: str, new: object, old: object, kind: str) -> Iterator[FieldError]:
    """An update must leave this part as it was; the error quotes it as an internal type."""
    if not workload.same(new, old):
        yield FieldError.invalid(path, internal_form(new, kind), rules.IMMUTABLE)


def may_change_template(job: Job) -> bool:
    """While a job is suspended and has no pods, where and with what they run may still change."""
    rests = not job.status.startTime or holds(job, "Suspended")
    return bool(job.spec.suspend) and rests and job.status.active == 0


def _with_scheduling(template: PodTemplateSpec, new: PodTemplateSpec) -> PodTemplateSpec:
    """The template with whatever of the new one says where pods go."""
    affinity, wanted = template.spec.affinity, new.spec.affinity
    node = wanted.nodeAffinity if wanted is not None else None
    if affinity is not None or wanted is not None:
        affinity = replace(affinity or Affinity(), nodeAffinity=node)
        if wanted is None and affinity == Affinity():
            affinity = None
    spec = replace(
        template.spec,
        affinity=affinity,
        nodeSelector=new.spec.nodeSelector,
        tolerations=new.spec.tolerations,
        schedulingGates=new.spec.schedulingGates,
    )
    return replace(template, metadata=new.metadata, spec=spec)


def _with_resources(spec: PodSpec, new: PodSpec) -> PodSpec:
    return replace(
        spec,
        containers=_resized(spec.containers, new.containers),
        initContainers=_resized(spec.initContainers, new.initContainers),
    )


def _resized(containers: Sequence[Container], new: Sequence[Container]) -> Sequence[Container]:
    if not new or len(containers) != len(new):
        return containers
    return [
        replace(old, resources=now.resources) if old.name == now.name else old
        for old, now in zip(containers, new, strict=True)
    ]
