"""Validation of status updates of Jobs: counters only grow, finished Jobs stay finished."""

from collections.abc import Iterator

from kedge.api import rules
from kedge.api.apps_v1 import workload
from kedge.api.batch_v1 import indexes
from kedge.api.batch_v1.job_types import INDEXED, Job, JobStatus, holds, is_finished
from kedge.api.batch_v1.job_validation import without_value
from kedge.machinery.errors import FieldError

_CONDITIONS = "status.conditions"


def validate_status(new: Job, old: Job) -> Iterator[FieldError]:
    """Most rules look only at what changes, so that an odd status can still be put right."""
    yield from _counts(new.status)
    yield from _uncounted(new.status)
    yield from _outcome(new, old)
    yield from _times(new, old)
    yield from _finished(new, old)
    yield from _indexes(new, old)
    ready = new.status.ready
    moved = ready != old.status.ready or new.status.active != old.status.active
    if moved and ready is not None and ready > new.status.active:
        yield FieldError.invalid("status.ready", ready, "cannot set more ready pods than active")
    yield from _success_criteria(new)
    yield from _no_way_back(new, old)


def _counts(status: JobStatus) -> Iterator[FieldError]:
    for word in ("active", "succeeded", "failed", "ready", "terminating"):
        yield from rules.nonnegative(f"status.{word}", getattr(status, word))


def _uncounted(status: JobStatus) -> Iterator[FieldError]:
    if status.uncountedTerminatedPods is None:
        return
    seen: set[str] = set()
    for word in ("succeeded", "failed"):
        for i, uid in enumerate(getattr(status.uncountedTerminatedPods, word)):
            at = f"status.uncountedTerminatedPods.{word}[{i}]"
            if not uid:
                yield FieldError.invalid(at, uid, "must not be empty")
            elif uid in seen:
                yield FieldError.duplicate(at, uid)
            seen.add(uid)


def _turned(new: Job, old: Job, *conditions: str) -> bool:
    return any(holds(new, each) != holds(old, each) for each in conditions)


def _outcome(new: Job, old: Job) -> Iterator[FieldError]:
    complete, failed = holds(new, "Complete"), holds(new, "Failed")
    target = holds(new, "FailureTarget")
    if _turned(new, old, "Complete", "Failed") and complete and failed:
        why = "cannot set Complete=True and Failed=true conditions"
        yield without_value(_CONDITIONS, why)
    if _turned(new, old, "Complete", "FailureTarget") and complete and target:
        why = "cannot set Complete=True and FailureTarget=true conditions"
        yield without_value(_CONDITIONS, why)
    indexes_changed = new.status.failedIndexes != old.status.failedIndexes
    if (_turned(new, old, "Failed") or indexes_changed) and failed and not target:
        why = "cannot set Failed=True condition without the FailureTarget=true condition"
        yield without_value(_CONDITIONS, why)
    met = holds(new, "SuccessCriteriaMet")
    if _turned(new, old, "Complete", "SuccessCriteriaMet") and complete and not met:
        why = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition"
        yield without_value(_CONDITIONS, why)


def _times(new: Job, old: Job) -> Iterator[FieldError]:
    start, end = new.status.startTime, new.status.completionTime
    started, ended = start != old.status.startTime, end != old.status.completionTime
    complete = holds(new, "Complete")
    if _turned(new, old, "Complete") or ended:
        if end and not complete:
            why = "cannot set completionTime when there is no Complete=True condition"
            yield FieldError.invalid("status.completionTime", end, why)
        if not end and complete:
            why = "completionTime is required for Complete jobs"
            yield FieldError.required("status.completionTime", why)
    if (started or ended) and start and end and end < start:
        why = "must be equal to or after `startTime`"
        yield FieldError.invalid("status.completionTime", end, why)
    if end and old.status.completionTime and ended:
        yield FieldError.invalid("status.completionTime", end, rules.IMMUTABLE)
    resuming = holds(old, "Suspended") and any(
        each.type == "Suspended" and each.status == "False" for each in new.status.conditions
    )
    if started and not resuming and old.status.startTime and not new.spec.suspend:
        why = "field is immutable for unsuspended job once set"
        yield FieldError.invalid("status.startTime", start or None, why)


def _finished(new: Job, old: Job) -> Iterator[FieldError]:
    """A job that has finished has no pods left and did start."""
    status, before = new.status, old.status
    if not is_finished(new):
        return
    newly = not is_finished(old)
    if (newly or status.active != before.active) and status.active > 0:
        why = "active>0 is invalid for finished job"
        yield FieldError.invalid("status.active", status.active, why)
    nothing_to_do = new.spec.suspend and new.spec.completions == 0
    moved = newly or status.startTime != before.startTime
    if moved and not nothing_to_do and not status.startTime:
        yield FieldError.required("status.startTime", "startTime is required for finished job")
    left = status.uncountedTerminatedPods
    changed = not workload.same(left, before.uncountedTerminatedPods)
    if (newly or changed) and left is not None and (left.failed or left.succeeded):
        why = "must be empty for finished job"
        yield FieldError.invalid("status.uncountedTerminatedPods", left, why)
    if (newly or status.terminating != before.terminating) and (status.terminating or 0) > 0:
        why = "terminating>0 is invalid for finished job"
        yield FieldError.invalid("status.terminating", status.terminating, why)


def _indexes(new: Job, old: Job) -> Iterator[FieldError]:
    completions = new.spec.completions
    done, failed = new.status.completedIndexes, new.status.failedIndexes
    done_changed = done != old.status.completedIndexes
    failed_changed = failed != old.status.failedIndexes
    if done_changed and completions is not None:
        yield from _parsed("completedIndexes", done, completions)
    limited = new.spec.backoffLimitPerIndex is not None
    if failed_changed and completions is not None and limited and failed is not None:
        yield from _parsed("failedIndexes", failed, completions)
    if done_changed and done and new.spec.completionMode != INDEXED:
        why = "cannot set non-empty completedIndexes when non-indexed completion mode"
        yield FieldError.invalid("status.completedIndexes", done, why)
    if failed_changed and failed is not None and not limited:
        why = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        yield FieldError.invalid("status.failedIndexes", failed, why)
    if (done_changed or failed_changed) and completions is not None and failed is not None:
        both = indexes.overlap(done, failed, completions)
        if both is not None:
            why = f"failedIndexes and completedIndexes overlap at index: {both}"
            yield FieldError.invalid("status.failedIndexes", failed, why)


def _parsed(word: str, text: str, completions: int) -> Iterator[FieldError]:
    try:
        indexes.parse(text, completions)
    except ValueError as error:
        yield FieldError.invalid(f"status.{word}", text, f"error parsing {word}: {error}")


def _success_criteria(new: Job) -> Iterator[FieldError]:
    met = holds(new, "SuccessCriteriaMet")
    if met and holds(new, "Failed"):
        why = "cannot set SuccessCriteriaMet=True and Failed=true conditions"
        yield without_value(_CONDITIONS, why)
    if met and holds(new, "FailureTarget"):
        why = "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"
        yield without_value(_CONDITIONS, why)
    if new.spec.successPolicy is not None and not met and holds(new, "Complete"):
        why = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"
        yield without_value(_CONDITIONS, why)


def _no_way_back(new: Job, old: Job) -> Iterator[FieldError]:
    for word in ("Failed", "Complete", "FailureTarget"):
        if holds(old, word) and not holds(new, word):
            yield without_value(_CONDITIONS, f"cannot disable the terminal {word}=True condition")
    if new.status.failed < old.status.failed:
        why = "cannot decrease the failed counter"
        yield FieldError.invalid("status.failed", new.status.failed, why)
    # A job whose pods all run at once may shrink, and what it counts with it.
    spec = new.spec
    elastic = spec.completionMode == INDEXED and spec.completions == spec.parallelism
    if not elastic and new.status.succeeded < old.status.succeeded:
        why = "cannot decrease the succeeded counter"
        yield FieldError.invalid("status.succeeded", new.status.succeeded, why)
    met_now, met_before = holds(new, "SuccessCriteriaMet"), holds(old, "SuccessCriteriaMet")
    if met_before and not met_now:
        yield without_value(_CONDITIONS, "cannot disable the SuccessCriteriaMet=True condition")
    if holds(old, "Complete") and not met_before and met_now:
        why = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions"
        yield without_value(_CONDITIONS, why)
