"""The objects that pods and volumes refer to: the node that runs them may read these."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.validation import MIRROR_POD
from kedge.api.core_v1.volume.volume import Volume

_WITH_SECRET_REF: Final = (
    "cephfs",
    "cinder",
    "flexVolume",
    "rbd",
    "scaleIO",
    "iscsi",
    "storageos",
)
"""Volume sources that name a secret in their `secretRef`."""
_OF_CSI: Final = ("nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef")
"""The secrets of a CSI volume that the node needs; others are for controllers."""


FEW: Final = 8
"""Sets of so many references are kept once if they are equal. A tenant may write larger ones."""
SHORT: Final = 4 << 10
"""Characters of the names in such a set. A name may have a million, and sets are kept when their
pods are gone."""


class Reference(NamedTuple):
    """An object, by resource, namespace and name."""

    plural: str
    namespace: str
    name: str


@lru_cache(1024)
def _one_of_equal(found: frozenset[Reference]) -> frozenset[Reference]:
    """Return the first of equal sets: thousands of pods of one template refer to the same."""
    return found


def of_pod(pod: Pod) -> frozenset[Reference]:
    """All that a pod refers to."""
    # A node could give itself rights by a pod of its own making that refers to things.
    if MIRROR_POD in pod.metadata.annotations:
        return frozenset()
    namespace = pod.metadata.namespace
    found = frozenset(Reference(plural, namespace, name) for plural, name in _named_by(pod) if name)
    is_small = len(found) <= FEW and sum(len(each.name) for each in found) <= SHORT
    return _one_of_equal(found) if is_small else found


def _named_by(pod: Pod) -> Iterator[tuple[str, str]]:
    spec, status = pod.spec, pod.status
    yield "serviceaccounts", spec.serviceAccountName
    for secret in spec.imagePullSecrets:
        yield "secrets", secret.name
    for container in (*spec.initContainers, *spec.containers, *spec.ephemeralContainers):
        yield from _named_by_container(container)
    for volume in spec.volumes:
        yield from _named_by_volume(pod, volume)
    generated = {each.name: each.resourceClaimName for each in status.resourceClaimStatuses}
    for claim in spec.resourceClaims:
        yield "resourceclaims", claim.resourceClaimName or generated.get(claim.name) or ""
    if status.extendedResourceClaimStatus is not None:
        yield "resourceclaims", status.extendedResourceClaimStatus.resourceClaimName


def _named_by_container(container: Any) -> Iterator[tuple[str, str]]:
    for source in container.envFrom:
        if source.secretRef is not None:
            yield "secrets", source.secretRef.name
        if source.configMapRef is not None:
            yield "configmaps", source.configMapRef.name
    for variable in container.env:
        origin = variable.valueFrom
        if origin is not None and origin.secretKeyRef is not None:
            yield "secrets", origin.secretKeyRef.name
        if origin is not None and origin.configMapKeyRef is not None:
            yield "configmaps", origin.configMapKeyRef.name


def _named_by_volume(pod: Pod, volume: Volume) -> Iterator[tuple[str, str]]:
    if volume.secret is not None:
        yield "secrets", volume.secret.secretName
    if volume.configMap is not None:
        yield "configmaps", volume.configMap.name
    if volume.projected is not None:
        for source in volume.projected.sources:
            if source.secret is not None:
                yield "secrets", source.secret.name
            if source.configMap is not None:
                yield "configmaps", source.configMap.name
    if volume.persistentVolumeClaim is not None:
        yield "persistentvolumeclaims", volume.persistentVolumeClaim.claimName
    if volume.ephemeral is not None:
        yield "persistentvolumeclaims", f"{pod.metadata.name}-{volume.name}"
    if volume.azureFile is not None:
        yield "secrets", volume.azureFile.secretName
    if volume.csi is not None and volume.csi.nodePublishSecretRef is not None:
        yield "secrets", volume.csi.nodePublishSecretRef.name
    for kind in _WITH_SECRET_REF:
        source = getattr(volume, kind)
        if source is not None and source.secretRef is not None:
            yield "secrets", source.secretRef.name


class Volumed(NamedTuple):
    """A persistent volume that is bound: to which claim, and the secrets for mounting it."""

    claim: Reference
    secrets: frozenset[Reference]


def of_volume(document: Mapping[str, Any]) -> Volumed | None:
    """Return the references of a persistent volume; None as long as it is not bound."""
    spec = document.get("spec") or {}
    bound = spec.get("claimRef")
    if bound is None:
        return None
    home = bound.get("namespace", "")
    claim = Reference("persistentvolumeclaims", home, bound.get("name", ""))
    named = _named_by_source(spec, home)
    return Volumed(claim, frozenset(Reference("secrets", ns, name) for ns, name in named if name))


def _named_by_source(spec: Mapping[str, Any], home: str) -> Iterator[tuple[str, str]]:
    azure = spec.get("azureFile")
    if azure is not None:
        yield azure.get("secretNamespace") or home, azure.get("secretName", "")
    for kind in _WITH_SECRET_REF:
        ref = (spec.get(kind) or {}).get("secretRef")
        if ref is not None:
            yield ref.get("namespace") or home, ref.get("name", "")
    for field in _OF_CSI:
        ref = (spec.get("csi") or {}).get(field)
        if ref is not None:
            yield ref.get("namespace", ""), ref.get("name", "")
