"""Decisions of the binder about a volume."""

from enum import Enum
from typing import Final, NamedTuple

from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim
from kedge.api.storage_v1.binding import AVAILABLE, has_same_mode
from kedge.api.storage_v1.local_volumes import LOCAL_DRIVER, LOCAL_PROVISIONER
from kedge.api.storage_v1.persistent_volume import PROVISIONED_BY, PersistentVolume

BOUND: Final = "Bound"
RELEASED: Final = "Released"
FAILED: Final = "Failed"


class VolumeAction(Enum):
    """The action that a volume needs after its phase is right."""

    NONE = "none"
    LOOK_AT_CLAIM = "look at claim"
    """The claim is to be bound to the volume, or its binding to be completed."""
    REPORT_MODE = "report mode"
    """Claim and volume have different modes."""
    UNBIND = "unbind"
    """The claim is bound to another volume."""
    RECLAIM = "reclaim"
    """The claim is gone: the reclaim policy applies."""


class VolumeStep(NamedTuple):
    """The phase that a volume should have, and the action that follows."""

    phase: str
    """Empty to leave the phase as it is."""
    action: VolumeAction = VolumeAction.NONE


def volume_step(volume: PersistentVolume, claim: PersistentVolumeClaim | None) -> VolumeStep:
    """Return the step for a volume; `claim` is the one that it names, if that exists."""
    reference = volume.spec.claimRef
    if reference is None:
        return VolumeStep(AVAILABLE)
    if not reference.uid:
        return VolumeStep(AVAILABLE, VolumeAction.LOOK_AT_CLAIM)
    if claim is None or claim.metadata.uid != reference.uid:
        return VolumeStep(_released(volume), VolumeAction.RECLAIM)
    if not claim.spec.volumeName:
        if not has_same_mode(volume, claim):
            return VolumeStep("", VolumeAction.REPORT_MODE)
        return VolumeStep("", VolumeAction.LOOK_AT_CLAIM)
    if claim.spec.volumeName == volume.metadata.name:
        return VolumeStep(BOUND)
    is_superfluous = PROVISIONED_BY in volume.metadata.annotations
    if is_superfluous and volume.spec.persistentVolumeReclaimPolicy == "Delete":
        return VolumeStep(_released(volume), VolumeAction.RECLAIM)
    return VolumeStep("", VolumeAction.UNBIND)


def _released(volume: PersistentVolume) -> str:
    """Keep a failure visible while reclaiming is tried again."""
    return "" if volume.status.phase in (RELEASED, FAILED) else RELEASED


class Reclaim(Enum):
    """The way in which a released volume is reclaimed."""

    KEEP = "keep"
    DELETE_OBJECT = "delete object"
    """The node removes the data when the object has a deletionTimestamp."""
    FAIL = "fail"


class ReclaimDecision(NamedTuple):
    """The fate of a released volume, and the event if reclaiming fails."""

    reclaim: Reclaim
    reason: str = ""
    message: str = ""


KEEP: Final = ReclaimDecision(Reclaim.KEEP)


def reclaim(volume: PersistentVolume) -> ReclaimDecision:
    """Decide about a released volume."""
    match volume.spec.persistentVolumeReclaimPolicy:
        case "Delete":
            return _deletion(volume)
        case "Recycle":
            # Upstream runs a pod with an image from its registry that removes all files.
            message = "No recycler plugin found for the volume!"
            return ReclaimDecision(Reclaim.FAIL, "VolumeFailedRecycle", message)
        case _:
            return KEEP


def _deletion(volume: PersistentVolume) -> ReclaimDecision:
    provisioner = volume.metadata.annotations.get(PROVISIONED_BY, "")
    if provisioner == LOCAL_PROVISIONER or volume.driver == LOCAL_DRIVER:
        return ReclaimDecision(Reclaim.DELETE_OBJECT)
    if provisioner and not provisioner.startswith("kubernetes.io/"):
        # An external provisioner deletes what it has made.
        return KEEP
    name = volume.metadata.name
    if volume.spec.hostPath is not None:
        path = volume.spec.hostPath.get("path", "")
        message = f"host_path deleter only supports /tmp/.+ but received provided {path}"
        if path.startswith("/tmp/"):
            message = f"kedge does not delete {path}: remove it on its node, then delete the volume"
    else:
        message = (
            f'error getting deleter volume plugin for volume "{name}": no volume plugin matched'
        )
    return ReclaimDecision(Reclaim.FAIL, "VolumeFailedDelete", message)
