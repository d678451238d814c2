"""Mirror pods: the images of what nodes run of their own accord, which refer to nothing here."""

from collections.abc import Iterator

from msgspec.structs import replace

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.validation import MIRROR_POD
from kedge.api.core_v1.volume.projection import VolumeProjection
from kedge.apiserver.authorization.references import of_pod

_SOURCES = {
    "configMap": "configmaps (via configmap volumes)",
    "secret": "secrets (via secret volumes)",
    "csi": "csidrivers (via CSI volumes)",
    "glusterfs": "endpoints (via glusterFS volumes)",
    "persistentVolumeClaim": "persistentvolumeclaims",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
    "azureFile": "secrets (via azureFile volumes)",
}
"""Volume sources that are, or lead to, objects of the API."""
_PROJECTIONS = {
    "configMap": "configmaps (via projected volumes)",
    "secret": "secrets (via projected volumes)",
    "serviceAccountToken": "serviceaccounts (via projected volumes)",
}


def is_mirror(pod: Pod) -> bool:
    return MIRROR_POD in pod.metadata.annotations


def referred(pod: Pod) -> set[str]:
    """Return the resources that the pod refers to by name."""
    # Without its annotations, since a mirror pod's references count for nothing elsewhere.
    plain = replace(pod, metadata=replace(pod.metadata, annotations={}))
    return {reference.plural for reference in of_pod(plain)}


def reference(pod: Pod) -> str:
    """Return the first resource that the pod refers to, as errors name it; empty if none."""
    plurals = referred(pod)
    for plural in ("serviceaccounts", "secrets", "configmaps"):
        if plural in plurals:
            return plural
    return "resourceclaims" if pod.spec.resourceClaims else next(_from_volumes(pod), "")


def projections(pod: Pod) -> Iterator[VolumeProjection]:
    """The parts of all projected volumes."""
    for volume in pod.spec.volumes:
        if volume.projected is not None:
            yield from volume.projected.sources


def _from_volumes(pod: Pod) -> Iterator[str]:
    for volume in pod.spec.volumes:
        for source, what in _SOURCES.items():
            if getattr(volume, source) is not None:
                yield what
    for part in projections(pod):
        for source, what in _PROJECTIONS.items():
            if getattr(part, source) is not None:
                yield what
