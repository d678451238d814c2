"""The volume of kedge's own kind that is made for a claim."""

from collections.abc import Iterable
from typing import Any, Final

from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim
from kedge.api.storage_v1.binding import (
    FILESYSTEM,
    class_of,
    has_same_mode,
    reference_to,
    size_of,
)
from kedge.api.storage_v1.capacity import free_bytes
from kedge.api.storage_v1.csi import CsiStorageCapacity
from kedge.api.storage_v1.local_sources import source_claim, source_refusal
from kedge.api.storage_v1.local_volumes import (
    COPY_OF,
    LOCAL_DATA,
    LOCAL_DRIVER,
    LOCAL_FINALIZER,
    LOCAL_PROVISIONER,
    VOLUME_NODE,
    node_label,
)
from kedge.api.storage_v1.persistent_volume import (
    PROVISIONED_BY,
    PV_PROTECTION,
    PersistentVolume,
    reachable_from,
)
from kedge.api.storage_v1.storage_class import StorageClass

HOSTNAME: Final = "kubernetes.io/hostname"
FS_TYPE: Final = "csi.storage.k8s.io/fstype"


def volume_name(claim: PersistentVolumeClaim) -> str:
    """Return the name of the volume that is made for a claim."""
    return f"pvc-{claim.metadata.uid}"


def refusal(claim: PersistentVolumeClaim) -> str:
    """Return why no volume can be made for a claim; empty if one can."""
    if claim.spec.selector is not None:
        return "claim.Spec.Selector is not supported"
    return source_refusal(claim)


def copy_refusal(claim: PersistentVolumeClaim, source: PersistentVolume | None) -> str:
    """Return why a volume cannot be copied for a claim; empty if it can."""
    name = source_claim(claim)
    if source is None:
        return f"claim {name} does not exist or is not bound"
    if source.driver != LOCAL_DRIVER:
        return f"the volume of claim {name} was not made by {LOCAL_PROVISIONER}"
    if LOCAL_DATA not in source.metadata.annotations:
        return f"claim {name} has no data: no pod has used it"
    if not has_same_mode(source, claim):
        return f"claim {name} has another volumeMode"
    if size_of(claim) < source.size:
        return f"the request is smaller than claim {name}, which has {source.size}"
    return ""


def chosen_node(
    storage_class: StorageClass,
    nodes: Iterable[Node],
    capacities: Iterable[CsiStorageCapacity],
    bytes_wanted: int,
) -> Node | None:
    """Return the node for a claim that does not wait for a pod: the one with most free space."""
    known = list(capacities)
    able = [
        (free, node)
        for node in nodes
        if storage_class.allows(node.metadata.labels)
        and (free := free_bytes(storage_class, node.metadata.labels, known)) >= bytes_wanted
    ]
    if not able:
        return None
    return min(able, key=lambda each: (-each[0], each[1].metadata.name))[1]


def provisioned_volume(
    claim: PersistentVolumeClaim, storage_class: StorageClass, node: Node, copy_of: str = ""
) -> dict[str, Any]:
    """Return the volume for a claim on a node, as it is posted; `copy_of` is the handle of the
    volume that it begins with."""
    meta = node.metadata
    parameters = dict(storage_class.parameters)
    csi: dict[str, Any] = {"driver": LOCAL_DRIVER, "volumeHandle": volume_name(claim)}
    if fs_type := parameters.pop(FS_TYPE, ""):
        csi["fsType"] = fs_type
    parameters.pop(COPY_OF, None)
    if copy_of:
        parameters[COPY_OF] = copy_of
    if parameters:
        csi["volumeAttributes"] = parameters
    hostname = {
        "key": HOSTNAME,
        "operator": "In",
        "values": [meta.labels.get(HOSTNAME, meta.name)],
    }
    spec: dict[str, Any] = {
        "capacity": {"storage": str(size_of(claim))},
        "accessModes": list(claim.spec.accessModes),
        "volumeMode": claim.spec.volumeMode or FILESYSTEM,
        "persistentVolumeReclaimPolicy": storage_class.reclaimPolicy or "Delete",
        "storageClassName": class_of(claim),
        "claimRef": reference_to(claim),
        "csi": csi,
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [hostname]}]}},
    }
    if storage_class.mountOptions:
        spec["mountOptions"] = list(storage_class.mountOptions)
    if claim.spec.volumeAttributesClassName:
        spec["volumeAttributesClassName"] = claim.spec.volumeAttributesClassName
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": volume_name(claim),
            "labels": {VOLUME_NODE: node_label(meta.name)},
            "annotations": {PROVISIONED_BY: LOCAL_PROVISIONER},
            "finalizers": [PV_PROTECTION, LOCAL_FINALIZER],
        },
        "spec": spec,
    }


def missing_label(volume: PersistentVolume, nodes: Iterable[Node]) -> str:
    """Return the label of a local volume that has none, so that its node follows it; empty if it
    has one or the node is not known. Volumes that were restored from manifests may lack it."""
    affinity = volume.spec.nodeAffinity
    if volume.driver != LOCAL_DRIVER or VOLUME_NODE in volume.metadata.labels:
        return ""
    if affinity is None or affinity.required is None:
        return ""
    is_there = reachable_from(volume)
    able = [each.metadata for each in nodes if is_there(each.metadata.name, each.metadata.labels)]
    return node_label(able[0].name) if len(able) == 1 else ""
