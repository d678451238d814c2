"""Applies LimitRanges to the pod templates of workloads, before pods exist."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kedge.api.apps_v1 import daemon_set, deployment, replica_set, stateful_set
from kedge.api.apps_v1.daemon_set import DaemonSet
from kedge.api.apps_v1.deployment import Deployment
from kedge.api.apps_v1.replica_set import ReplicaSet
from kedge.api.apps_v1.stateful_set import StatefulSet
from kedge.api.batch_v1 import cron_job, job
from kedge.api.batch_v1.cron_job import CronJob
from kedge.api.batch_v1.job_types import Job
from kedge.api.core_v1 import replication_controller
from kedge.api.core_v1.nesting import within
from kedge.api.core_v1.pod import defaults
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.spec import PodTemplateSpec
from kedge.api.core_v1.replication_controller import ReplicationController
from kedge.api.core_v1.resource_validation import (
    validate_container_resources,
    validate_pod_resources,
)
from kedge.api.limits.bounds import NamespaceLimits
from kedge.api.limits.defaulting import DefaultedAmount, defaulted
from kedge.api.limits.violations import LimitRangeViolation, pod_violations
from kedge.api.model import Object, ObjectMeta
from kedge.machinery.errors import FieldError

RESOURCES = (
    deployment.RESOURCE,
    stateful_set.RESOURCE,
    daemon_set.RESOURCE,
    replica_set.RESOURCE,
    replication_controller.RESOURCE,
    job.RESOURCE,
    cron_job.RESOURCE,
)
"""The kinds whose objects make pods."""

_PLAIN = Deployment | StatefulSet | DaemonSet | ReplicaSet | Job | ReplicationController


class WorkloadTemplate(NamedTuple):
    """The pod template of a workload, and its field path."""

    path: str
    spec: PodTemplateSpec


def template_of(obj: Object) -> WorkloadTemplate | None:
    """The template of a workload; None if it has none or is no workload."""
    if isinstance(obj, _PLAIN):
        return WorkloadTemplate("spec.template", obj.spec.template) if obj.spec.template else None
    if isinstance(obj, CronJob):
        return WorkloadTemplate(
            "spec.jobTemplate.spec.template", obj.spec.jobTemplate.spec.template
        )
    return None


def pod_from(template: PodTemplateSpec, namespace: str) -> Pod:
    """A pod as the workload would post it and the server take it in; it has no name yet."""
    meta = ObjectMeta(
        namespace=namespace,
        labels=template.metadata.labels,
        annotations=template.metadata.annotations,
    )
    return defaults.default(Pod(metadata=meta, spec=template.spec))


class LimitRangeOutcome(NamedTuple):
    """A pod after defaulting, with its violations."""

    pod: Pod
    given: Sequence[DefaultedAmount]
    violations: Sequence[LimitRangeViolation]
    """Why it would be refused: the constraints that it violates, or what it was given itself."""


def outcome(bounds: NamespaceLimits, pod: Pod) -> LimitRangeOutcome:
    """Return the effect of the LimitRanges on a valid pod with its defaults filled in."""
    changed, given = defaulted(bounds, pod)
    # Validation comes before the plugin's own check, so the first keeps the second from being seen.
    unbearable = list(_unbearable(pod, changed, given)) if given else []
    return LimitRangeOutcome(changed, given, unbearable or pod_violations(bounds, changed))


def _unbearable(
    before: Pod, after: Pod, given: Sequence[DefaultedAmount]
) -> Iterator[LimitRangeViolation]:
    """Yield the errors of amounts that defaulting caused."""
    known = {str(error) for error in _amount_errors(before)}
    names = ", ".join(dict.fromkeys(each.limit_range for each in given))
    for error in _amount_errors(after):
        if str(error) not in known:
            yield LimitRangeViolation(names, str(error))


def _amount_errors(pod: Pod) -> Iterator[FieldError]:
    spec = pod.spec
    for field in ("containers", "initContainers"):
        for i, container in enumerate(getattr(spec, field)):
            path = f"spec.{field}[{i}].resources"
            yield from within(path, validate_container_resources(container.resources))
    yield from within("spec.resources", validate_pod_resources(spec, frozenset()))
