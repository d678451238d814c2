"""Builds the pods of a job."""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from kedge.api.batch_v1.job import RESOURCE
from kedge.api.batch_v1.job_types import Job
from kedge.api.core_v1.pod.container import Container, EnvVar, EnvVarSource
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.references import ObjectFieldSelector
from kedge.controllers.batch.job_policies import judged
from kedge.controllers.batch.job_tally import (
    FINALIZER,
    INDEX,
    INDEX_FAILURES,
    INDEX_IGNORED,
    index_failures,
    index_ignored,
)
from kedge.controllers.pod_control import pod_of

INDEX_VARIABLE: Final = "JOB_COMPLETION_INDEX"
PREFIX_LIMIT: Final = 58
"""Characters of a name that is completed with five more to at most 63."""


def new_pod(job: Job) -> Pod:
    """A pod as the job posts it, to be counted when it has ended."""
    pod = pod_of(RESOURCE, job, job.spec.template)
    finalizers = list(dict.fromkeys((*pod.metadata.finalizers, FINALIZER)))
    return replace(pod, metadata=replace(pod.metadata, finalizers=finalizers))


def new_indexed_pod(job: Job, index: int, replaced: Pod | None) -> Pod:
    """A pod for one index, which may take the place of one that failed."""
    pod = new_pod(job)
    meta = replace(
        pod.metadata,
        generateName=_prefix(job.metadata.name, index),
        labels={**pod.metadata.labels, INDEX: str(index)},
        annotations={
            **pod.metadata.annotations,
            INDEX: str(index),
            **_failures(job, replaced),
        },
    )
    spec = replace(
        pod.spec,
        hostname=f"{job.metadata.name}-{index}",
        containers=_told(pod.spec.containers),
        initContainers=_told(pod.spec.initContainers),
    )
    return replace(pod, metadata=meta, spec=spec)


def _prefix(name: str, index: int) -> str:
    suffix = f"-{index}-"
    return name[: PREFIX_LIMIT - len(suffix)] + suffix


def _failures(job: Job, replaced: Pod | None) -> dict[str, str]:
    if job.spec.backoffLimitPerIndex is None:
        return {}
    failures = ignored = 0
    if replaced is not None:
        failures, ignored = index_failures(replaced), index_ignored(replaced)
        if judged(job.spec.podFailurePolicy, replaced).counts:
            failures += 1
        else:
            ignored += 1
    counts = {INDEX_FAILURES: str(failures)}
    return {**counts, INDEX_IGNORED: str(ignored)} if ignored else counts


def _told(containers: Sequence[Container]) -> Sequence[Container]:
    """The containers with a variable for their index, unless they have one of that name."""
    return [
        each
        if any(variable.name == INDEX_VARIABLE for variable in each.env)
        else replace(each, env=[*each.env, _INDEX_VARIABLE])
        for each in containers
    ]


_INDEX_VARIABLE: Final = EnvVar(
    name=INDEX_VARIABLE,
    valueFrom=EnvVarSource(fieldRef=ObjectFieldSelector(fieldPath=f"metadata.labels['{INDEX}']")),
)
