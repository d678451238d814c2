"""The pods of a StatefulSet: each has an ordinal, and from it a name, labels and claims."""

import re
from typing import Final

from msgspec.structs import replace

from kedge.api.apps_v1.stateful_set import RESOURCE, StatefulSet
from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.spec import PodSpec, PodTemplateSpec
from kedge.api.core_v1.volume.volume import PersistentVolumeClaimVolumeSource, Volume
from kedge.api.model import ObjectMeta
from kedge.controllers.pod_control import pod_of

POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX: Final = "apps.kubernetes.io/pod-index"
REVISION: Final = "controller-revision-hash"
INDEX_ANNOTATIONS: Final = (
    "pod.beta.kubernetes.io/statefulset-index",
    "spec.pod.beta.kubernetes.io/statefulset-index",
)
"""The annotations of the index in the original proposal of the downward API."""

ORDINAL_LIMIT: Final = 2**31
_NUMBERED: Final = re.compile(r"(.*)-([0-9]+)", re.DOTALL)


def parent_and_ordinal(name: str) -> tuple[str, int]:
    """The name of the set that a pod's name belongs to and the pod's number; ("", -1) if none."""
    found = _NUMBERED.fullmatch(name)
    if found is None:
        return "", -1
    ordinal = int(found[2])
    return found[1], ordinal if ordinal < ORDINAL_LIMIT else -1


def ordinal_of(pod: Pod) -> int:
    return parent_and_ordinal(pod.metadata.name)[1]


def is_member(owner: StatefulSet, pod: Pod) -> bool:
    """Whether a pod is named after the set."""
    return parent_and_ordinal(pod.metadata.name)[0] == owner.metadata.name


def first_ordinal(owner: StatefulSet) -> int:
    return owner.spec.ordinals.start if owner.spec.ordinals else 0


def ordinals(owner: StatefulSet) -> range:
    """Return the ordinals that should have pods."""
    first = first_ordinal(owner)
    return range(first, first + (owner.spec.replicas or 0))


def revision_of(pod: Pod) -> str:
    return pod.metadata.labels.get(REVISION, "")


def numbered_pod(owner: StatefulSet, template: PodTemplateSpec, ordinal: int, revision: str) -> Pod:
    """Return the pod of an ordinal, as it is posted."""
    pod = pod_of(RESOURCE, owner, template)
    name = f"{owner.metadata.name}-{ordinal}"
    meta = identified(replace(pod.metadata, name=name))
    meta = replace(meta, labels={**meta.labels, REVISION: revision})
    spec = replace(pod.spec, hostname=name, subdomain=owner.spec.serviceName)
    return replace(pod, metadata=meta, spec=with_claims(owner, spec, ordinal))


def has_identity(pod: Pod) -> bool:
    """Whether a pod has the labels and annotations of its ordinal."""
    return pod.metadata.labels.get(POD_NAME) == pod.metadata.name


def identified(meta: ObjectMeta) -> ObjectMeta:
    """Labels and annotations by which people, services and programs find one pod of a set."""
    index = str(parent_and_ordinal(meta.name)[1])
    return replace(
        meta,
        labels={**meta.labels, POD_NAME: meta.name, POD_INDEX: index},
        annotations={**meta.annotations, **dict.fromkeys(INDEX_ANNOTATIONS, index)},
    )


def claim_name(template: PersistentVolumeClaim, owner: StatefulSet, ordinal: int) -> str:
    return f"{template.metadata.name}-{owner.metadata.name}-{ordinal}"


def claims_of(owner: StatefulSet, ordinal: int) -> list[PersistentVolumeClaim]:
    """The claims of one pod, as they are posted."""
    selector = owner.spec.selector
    wanted = selector.matchLabels if selector else {}
    return [
        replace(
            each,
            metadata=replace(
                each.metadata,
                name=claim_name(each, owner, ordinal),
                namespace=owner.metadata.namespace,
                labels={**each.metadata.labels, **wanted},
            ),
        )
        for each in owner.spec.volumeClaimTemplates
    ]


def with_claims(owner: StatefulSet, spec: PodSpec, ordinal: int) -> PodSpec:
    """A pod's spec with a volume for each claim, in place of the template's of the same name."""
    claimed = [
        Volume(
            name=each.metadata.name,
            persistentVolumeClaim=PersistentVolumeClaimVolumeSource(
                claimName=claim_name(each, owner, ordinal)
            ),
        )
        for each in owner.spec.volumeClaimTemplates
    ]
    if not claimed:
        return spec
    names = {each.name for each in claimed}
    return replace(
        spec, volumes=[*claimed, *(each for each in spec.volumes if each.name not in names)]
    )
