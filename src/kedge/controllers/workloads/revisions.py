"""Revisions: the ReplicaSets of a Deployment as its history, each with a revision number."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from kedge.api.apps_v1.deployment import RESOURCE as DEPLOYMENTS
from kedge.api.apps_v1.deployment import Deployment
from kedge.api.apps_v1.replica_set import ReplicaSet, ReplicaSetSpec
from kedge.api.apps_v1.workload import same
from kedge.api.core_v1.pod.spec import PodTemplateSpec
from kedge.api.model import LabelSelector, ObjectMeta
from kedge.api.resource import enc_hook
from kedge.controllers.pod_control import owned_by
from kedge.controllers.pod_state import is_leaving
from kedge.controllers.workloads.rollout import (
    DESIRED,
    MOST,
    DeploymentReplicaSets,
    by_age,
    desired_replicas,
    first_size,
    most,
    size,
)

HASH_LABEL: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
HISTORY: Final = "deployment.kubernetes.io/revision-history"
_OWN: Final = frozenset(
    (
        "kubectl.kubernetes.io/last-applied-configuration",
        "deprecated.deployment.rollback.to",
        REVISION,
        HISTORY,
        DESIRED,
        MOST,
    )
)
"""Annotations that a Deployment does not hand down to its ReplicaSets."""
HISTORY_LIMIT: Final = 2000
"""Characters of the list of numbers that a ReplicaSet has had."""
NAME_LIMIT: Final = 253
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Neither vowels nor what looks like one, as in generated names: no words come about."""


# Templates.


def template_hash(template: PodTemplateSpec, collisions: int | None) -> str:
    """A short name for a template; another one if the first was found taken."""
    content = msgspec.json.encode(template, enc_hook=enc_hook, order="sorted")
    salt = b"" if collisions is None else b"%d" % collisions
    number = int.from_bytes(hashlib.blake2b(content + salt, digest_size=4).digest())
    return "".join(_LETTERS[ord(digit) % len(_LETTERS)] for digit in str(number))


def is_same_template(one: PodTemplateSpec, other: PodTemplateSpec) -> bool:
    """Whether two templates differ in nothing but the hash that their sets gave them."""
    return same(_unhashed(one), _unhashed(other))


def _unhashed(template: PodTemplateSpec) -> PodTemplateSpec:
    meta = template.metadata
    if HASH_LABEL not in meta.labels:
        return template
    labels = {key: value for key, value in meta.labels.items() if key != HASH_LABEL}
    return replace(template, metadata=replace(meta, labels=labels))


def sorted_out(deployment: Deployment, sets: Iterable[ReplicaSet]) -> DeploymentReplicaSets:
    """Which ReplicaSet is the new one; should several have its template, the oldest of them."""
    found = sorted(sets, key=by_age)
    template = deployment.spec.template
    new = next((each for each in found if is_same_template(each.spec.template, template)), None)
    return DeploymentReplicaSets(new, [each for each in found if each is not new])


# Numbers.


def revision(set_: ReplicaSet) -> int:
    """The number of a ReplicaSet in the history, 0 if it has none."""
    try:
        return int(set_.metadata.annotations.get(REVISION, "0"))
    except ValueError:
        return 0


def next_revision(old: Iterable[ReplicaSet]) -> int:
    """The number of the new ReplicaSet, given the old ones."""
    return max(map(revision, old), default=0) + 1


def handed_down(deployment: Deployment, annotations: Mapping[str, str]) -> dict[str, str]:
    """Annotations of a ReplicaSet, with those that its Deployment hands down."""
    given = deployment.metadata.annotations.items()
    return {**annotations, **{key: value for key, value in given if key not in _OWN}}


def renumbered(annotations: Mapping[str, str], number: int) -> dict[str, str]:
    """Annotations of a ReplicaSet that is the newest again, its former number remembered."""
    new = dict(annotations)
    before = annotations.get(REVISION)
    try:
        if int(before or "0") >= number:
            return new
    except ValueError:
        return new
    new[REVISION] = str(number)
    if before is not None:
        new[HISTORY] = _remembered(annotations.get(HISTORY, ""), before)
    return new


def _remembered(history: str, before: str) -> str:
    numbers = [*filter(None, history.split(",")), before]
    while len(numbers) > 1 and len(",".join(numbers)) > HISTORY_LIMIT:
        del numbers[0]
    return ",".join(numbers)


def numbered(deployment: Deployment, new: ReplicaSet) -> Deployment:
    """A Deployment that says which number its new ReplicaSet has."""
    meta, number = deployment.metadata, new.metadata.annotations.get(REVISION, "")
    if meta.annotations.get(REVISION, "") == number:
        return deployment
    annotations = {**meta.annotations, REVISION: number}
    return replace(deployment, metadata=replace(meta, annotations=annotations))


def noting_size(deployment: Deployment, annotations: Mapping[str, str]) -> dict[str, str]:
    """Annotations of a ReplicaSet, with what its Deployment wants now."""
    sizes = {DESIRED: str(desired_replicas(deployment)), MOST: str(most(deployment))}
    return {**annotations, **sizes}


# ReplicaSets.


def brought_up_to_date(
    deployment: Deployment, new: ReplicaSet, old: Sequence[ReplicaSet]
) -> ReplicaSet:
    """The ReplicaSet with the Deployment's template, with all else that it takes from there."""
    annotations = handed_down(deployment, new.metadata.annotations)
    annotations = renumbered(annotations, next_revision(old))
    return replace(
        new,
        metadata=replace(new.metadata, annotations=annotations),
        spec=replace(new.spec, minReadySeconds=deployment.spec.minReadySeconds),
    )


def new_set(deployment: Deployment, old: Sequence[ReplicaSet]) -> ReplicaSet:
    """The ReplicaSet for a template that has none yet."""
    spec = deployment.spec
    name = template_hash(spec.template, deployment.status.collisionCount)
    mark = {HASH_LABEL: name}
    meta = spec.template.metadata
    labels = {**meta.labels, **mark}
    selector = spec.selector or LabelSelector()
    annotations = renumbered(handed_down(deployment, {}), next_revision(old))
    return ReplicaSet(
        metadata=ObjectMeta(
            name=set_name(deployment.metadata.name, name),
            namespace=deployment.metadata.namespace,
            labels=labels,
            annotations=noting_size(deployment, annotations),
            ownerReferences=[owned_by(DEPLOYMENTS, deployment)],
        ),
        spec=ReplicaSetSpec(
            replicas=first_size(deployment, old),
            minReadySeconds=spec.minReadySeconds,
            selector=replace(selector, matchLabels={**selector.matchLabels, **mark}),
            template=replace(spec.template, metadata=replace(meta, labels=labels)),
        ),
    )


def set_name(deployment: str, hash_: str) -> str:
    return f"{deployment[: NAME_LIMIT - 1 - len(hash_)]}-{hash_}"


def outlived(deployment: Deployment, old: Sequence[ReplicaSet]) -> list[ReplicaSet]:
    """Old ReplicaSets that the history has no room for, as far as they have no pods any more."""
    limit = deployment.spec.revisionHistoryLimit
    if limit is None:
        return []
    staying = [each for each in old if not is_leaving(each)]
    staying.sort(key=lambda each: (revision(each), by_age(each)))
    beyond = staying[: max(len(staying) - limit, 0)]
    return [each for each in beyond if _is_empty(each)]


def _is_empty(set_: ReplicaSet) -> bool:
    observed = set_.status.observedGeneration >= set_.metadata.generation
    return observed and not size(set_) and not set_.status.replicas
