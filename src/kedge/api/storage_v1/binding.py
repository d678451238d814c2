"""Binding: which volume a claim gets, and why a volume does not satisfy a claim."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from kedge.api.core_v1.persistent_volume_claim import (
    BOUND,
    STORAGE_CLASS,
    PersistentVolumeClaim,
)
from kedge.api.label_selector import compiled
from kedge.api.storage_v1.persistent_volume import (
    BIND_COMPLETED,
    PersistentVolume,
    VolumeClaimReference,
)
from kedge.machinery.quantity import Quantity

AVAILABLE: Final = "Available"
FILESYSTEM: Final = "Filesystem"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
_ZERO: Final = Quantity.from_value(0)

Reachable = Callable[[PersistentVolume], bool]


def class_of(claim: PersistentVolumeClaim) -> str:
    """Return the name of a claim's class; empty if it has none."""
    annotated = claim.metadata.annotations.get(STORAGE_CLASS)
    return annotated if annotated is not None else claim.spec.storageClassName or ""


def has_no_class(claim: PersistentVolumeClaim) -> bool:
    """Whether a claim leaves its class open, so that it gets the default one."""
    return STORAGE_CLASS not in claim.metadata.annotations and claim.spec.storageClassName is None


def size_of(claim: PersistentVolumeClaim) -> Quantity:
    """Return the storage that a claim requests."""
    return claim.spec.resources.requests.get("storage", _ZERO)


def is_fully_bound(claim: PersistentVolumeClaim) -> bool:
    """Whether both sides have agreed: pods may use the claim."""
    has_volume = claim.spec.volumeName and BIND_COMPLETED in claim.metadata.annotations
    return bool(has_volume) and claim.status.phase == BOUND


def is_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether a volume names the claim, by uid or (pre-bound) by name only."""
    reference = volume.spec.claimRef
    if reference is None:
        return False
    meta = claim.metadata
    if (reference.namespace, reference.name) != (meta.namespace, meta.name):
        return False
    return reference.uid in ("", meta.uid)


def mismatch(volume: PersistentVolume, claim: PersistentVolumeClaim) -> str:
    """Return why a volume that a claim names does not satisfy it; empty if it does."""
    if volume.metadata.deletionTimestamp:
        return f'the volume is marked for deletion "{volume.metadata.name}"'
    if volume.size < size_of(claim):
        return "requested PV is too small"
    if volume.storage_class != class_of(claim):
        return "storageClassName does not match"
    if not has_same_attributes(volume, claim):
        return "volumeAttributesClassName does not match"
    if not has_same_mode(volume, claim):
        return "incompatible volumeMode"
    if not set(claim.spec.accessModes) <= set(volume.spec.accessModes):
        return "incompatible accessMode"
    return ""


def has_same_mode(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether both are file systems or both are block devices."""
    return (volume.spec.volumeMode or FILESYSTEM) == (claim.spec.volumeMode or FILESYSTEM)


def has_same_attributes(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether both have the same class of attributes, or none."""
    own, wanted = volume.spec.volumeAttributesClassName, claim.spec.volumeAttributesClassName
    return (own or "") == (wanted or "")


def best_volume(
    claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume], *, waits: bool
) -> PersistentVolume | None:
    """Return the volume that the controller binds to a claim without a volume name.

    Volumes are tried in groups of equal access modes, the group with the fewest modes first. If
    the class waits for the first pod, only a volume that names the claim is taken.
    """
    for group in _groups(claim, volumes):
        if (found := _best(claim, group, waits=waits)) is not None:
            return found
    return None


def best_volume_for_node(
    claim: PersistentVolumeClaim,
    volumes: Iterable[PersistentVolume],
    reachable: Reachable,
    taken: Collection[str],
) -> PersistentVolume | None:
    """Return the volume that the scheduler binds to a claim whose class waits.

    `taken` names the volumes that other claims of the pod, or other pods, have been promised.
    """
    modes = set(claim.spec.accessModes)
    able = (
        each
        for each in volumes
        if each.metadata.name not in taken
        # Most volumes of a class belong to other claims, and are not compared with the node.
        and (each.spec.claimRef is None or is_for(each, claim))
        and modes <= set(each.spec.accessModes)
        and reachable(each)
    )
    return _best(claim, able, waits=False)


def _groups(
    claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume]
) -> Sequence[list[PersistentVolume]]:
    wanted = frozenset(claim.spec.accessModes)
    groups: dict[frozenset[str], list[PersistentVolume]] = {}
    for volume in volumes:
        modes = frozenset(volume.spec.accessModes)
        if wanted <= modes:
            groups.setdefault(modes, []).append(volume)
    return [groups[modes] for modes in sorted(groups, key=len)]


def _best(
    claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume], *, waits: bool
) -> PersistentVolume | None:
    selector = compiled(claim.spec.selector) if claim.spec.selector is not None else None
    wanted, name = size_of(claim), class_of(claim)
    best: PersistentVolume | None = None
    for volume in volumes:
        reference = volume.spec.claimRef
        if reference is not None and not is_for(volume, claim):
            continue
        if not _is_usable(volume, claim, wanted):
            continue
        if reference is not None:
            return volume
        if waits or volume.status.phase != AVAILABLE or volume.storage_class != name:
            continue
        if selector is not None and not selector.matches(volume.metadata.labels):
            continue
        if best is None or volume.size < best.size:
            best = volume
    return best


def _is_usable(volume: PersistentVolume, claim: PersistentVolumeClaim, wanted: Quantity) -> bool:
    return (
        volume.size >= wanted
        and has_same_mode(volume, claim)
        and has_same_attributes(volume, claim)
        and not volume.metadata.deletionTimestamp
    )


def reference_to(claim: PersistentVolumeClaim) -> dict[str, str]:
    """Return the claimRef of a volume that is bound to a claim."""
    meta = claim.metadata
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": meta.namespace,
        "name": meta.name,
        "uid": meta.uid,
        "resourceVersion": meta.resourceVersion,
    }


def claim_named(reference: VolumeClaimReference) -> str:
    """Return the claim of a reference as people write it."""
    return f"{reference.namespace}/{reference.name}"
