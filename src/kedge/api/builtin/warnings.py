"""Warnings for clients that write valid but unwise objects of the kinds from the table."""

from collections.abc import Iterator
from typing import Final

from kedge.api.builtin.content import listed, numbered, reach, text, typed
from kedge.api.core_v1.deprecated_labels import DEPRECATED, selector_warnings, term_warnings
from kedge.api.core_v1.pod.affinity import NodeSelectorTerm
from kedge.api.model import Document, LabelSelector

_DEPRECATED_ANNOTATIONS: Final = {
    "volume.beta.kubernetes.io/storage-class": (
        'deprecated since v1.8; use "storageClassName" attribute instead'
    ),
    "volume.beta.kubernetes.io/mount-options": (
        'deprecated since v1.31; use "mountOptions" attribute instead'
    ),
}
_DEPRECATED_VOLUMES: Final = {
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}


def csi_driver(obj: Document) -> Iterator[str]:
    """Warn of service account tokens that may be logged."""
    spec = obj.content.get("spec") or {}
    if spec.get("tokenRequests") and spec.get("serviceAccountTokenInSecrets") is None:
        yield (
            "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to"
            " true to prevent possible logging of tokens in volume attributes"
        )


def csi_storage_capacity(obj: Document) -> Iterator[str]:
    topology = obj.content.get("nodeTopology")
    if topology is not None:
        yield from selector_warnings(typed(topology, LabelSelector), "nodeTopology")


def storage_class(obj: Document) -> Iterator[str]:
    for path, term in numbered(obj.content, "allowedTopologies"):
        for i, requirement in enumerate(listed(term, "matchLabelExpressions")):
            key = text(requirement, "key")
            if key in DEPRECATED:
                yield f"{path}.matchLabelExpressions[{i}].key: {DEPRECATED[key]}"


def persistent_volume(obj: Document) -> Iterator[str]:
    for key, message in _DEPRECATED_ANNOTATIONS.items():
        if key in obj.metadata.annotations:
            yield f"metadata.annotations[{key}]: {message}"
    if text(obj.content, "spec.persistentVolumeReclaimPolicy") == "Recycle":
        yield (
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead,"
            " the recommended approach is to use dynamic provisioning."
        )
    terms = "spec.nodeAffinity.required.nodeSelectorTerms"
    for path, term in numbered(obj.content, terms):
        yield from term_warnings(typed(term, NodeSelectorTerm), path)
    for source, message in _DEPRECATED_VOLUMES.items():
        if reach(obj.content, f"spec.{source}") is not None:
            # Upstream spells this one source's path in its own way.
            yield f"spec.{'storageOS' if source == 'storageos' else source}: {message}"


def runtime_class(obj: Document) -> Iterator[str]:
    for key in reach(obj.content, "scheduling.nodeSelector") or ():
        if key in DEPRECATED:
            yield f"scheduling.nodeSelector: {DEPRECATED[key]}"
