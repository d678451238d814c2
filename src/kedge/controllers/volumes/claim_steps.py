"""Decisions of the binder about a claim, in the order of Kubernetes' controller."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim
from kedge.api.storage_v1.binding import (
    SELECTED_NODE,
    best_volume,
    class_of,
    has_no_class,
    is_for,
    mismatch,
)
from kedge.api.storage_v1.local_sources import source_claim
from kedge.api.storage_v1.local_volumes import LOCAL_PROVISIONER
from kedge.api.storage_v1.persistent_volume import BIND_COMPLETED, PersistentVolume
from kedge.api.storage_v1.storage_class import StorageClass
from kedge.client.events import NORMAL, WARNING

IN_TREE: Final = "kubernetes.io/"
"""The prefix of provisioners that were part of Kubernetes."""


class StorageEvent(NamedTuple):
    """An event about a claim or a volume."""

    type: str
    reason: str
    message: str


class BindClaim(NamedTuple):
    """Bind the claim to this volume; a bind that was interrupted is completed."""

    volume: PersistentVolume


class LeavePending(NamedTuple):
    """The claim waits."""

    event: StorageEvent | None = None


class LoseClaim(NamedTuple):
    """The volume of a bound claim is gone."""

    event: StorageEvent


class AssignClass(NamedTuple):
    """The claim gets the default class."""

    name: str


class ProvisionVolume(NamedTuple):
    """A volume of kedge's own kind is made."""

    storage_class: StorageClass
    node: str
    """The node that the scheduler chose; empty if any will do."""


class AwaitProvisioner(NamedTuple):
    """Another program makes the volume."""

    provisioner: str


ClaimStep = BindClaim | LeavePending | LoseClaim | AssignClass | ProvisionVolume | AwaitProvisioner


class KnownStorage(Protocol):
    """The objects that the decision looks at."""

    def volume(self, name: str) -> PersistentVolume | None: ...

    def candidates(self, claim: PersistentVolumeClaim) -> Iterable[PersistentVolume]:
        """Return the volumes for the claim, and those of its class that are for no claim."""
        ...

    def storage_class(self, name: str) -> StorageClass | None: ...

    def default_class(self) -> StorageClass | None: ...

    def unscheduled_pods(self, claim: PersistentVolumeClaim) -> Sequence[str]:
        """Return the names of pods that use the claim and have no node."""
        ...


NO_CLASS: Final = StorageEvent(
    NORMAL,
    "FailedBinding",
    "no persistent volumes available for this claim and no storage class is set",
)
LOST_REFERENCE: Final = StorageEvent(
    WARNING,
    "ClaimLost",
    "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!",
)
LOST_VOLUME: Final = StorageEvent(
    WARNING,
    "ClaimLost",
    "Bound claim has lost its PersistentVolume. Data on the volume is lost!",
)
MISBOUND: Final = StorageEvent(
    WARNING,
    "ClaimMisbound",
    "Two claims are bound to the same volume, this one is bound incorrectly",
)
WAITING: Final = StorageEvent(
    NORMAL,
    "WaitForFirstConsumer",
    "waiting for first consumer to be created before binding",
)


def claim_step(claim: PersistentVolumeClaim, known: KnownStorage) -> ClaimStep:
    """Return the next step for a claim."""
    if BIND_COMPLETED in claim.metadata.annotations:
        return _bound(claim, known)
    if claim.spec.volumeName:
        return _named(claim, known)
    return _unbound(claim, known)


def _bound(claim: PersistentVolumeClaim, known: KnownStorage) -> ClaimStep:
    if not claim.spec.volumeName:
        return LoseClaim(LOST_REFERENCE)
    volume = known.volume(claim.spec.volumeName)
    if volume is None:
        return LoseClaim(LOST_VOLUME)
    reference = volume.spec.claimRef
    if reference is None or reference.uid == claim.metadata.uid:
        return BindClaim(volume)
    return LoseClaim(MISBOUND)


def _named(claim: PersistentVolumeClaim, known: KnownStorage) -> ClaimStep:
    volume = known.volume(claim.spec.volumeName)
    if volume is None:
        return LeavePending()
    if volume.spec.claimRef is None:
        if why := mismatch(volume, claim):
            message = f'Cannot bind to requested volume "{volume.metadata.name}": {why}'
            return LeavePending(StorageEvent(WARNING, "VolumeMismatch", message))
        return BindClaim(volume)
    if is_for(volume, claim):
        return BindClaim(volume)
    message = f'volume "{volume.metadata.name}" already bound to a different claim.'
    return LeavePending(StorageEvent(WARNING, "FailedBinding", message))


def _unbound(claim: PersistentVolumeClaim, known: KnownStorage) -> ClaimStep:
    name = class_of(claim)
    storage_class = known.storage_class(name) if name else None
    waits = storage_class is not None and storage_class.waits
    volume = best_volume(claim, known.candidates(claim), waits=waits)
    if volume is not None:
        return BindClaim(volume)
    if has_no_class(claim) and (default := known.default_class()) is not None:
        return AssignClass(default.metadata.name)
    is_placed = SELECTED_NODE in claim.metadata.annotations or _is_copy(claim, storage_class)
    if waits and not is_placed:
        return LeavePending(waiting_event(known.unscheduled_pods(claim)))
    if not name:
        return LeavePending(NO_CLASS)
    return _provision(claim, name, storage_class)


def _is_copy(claim: PersistentVolumeClaim, storage_class: StorageClass | None) -> bool:
    """Whether a claim begins with the content of another, on whose node its volume is made."""
    is_local = storage_class is not None and storage_class.provisioner == LOCAL_PROVISIONER
    return is_local and bool(source_claim(claim))


def waiting_event(pods: Sequence[str]) -> StorageEvent:
    """Return the event for a claim that waits for a pod, or for its pods to get a node."""
    if not pods:
        return WAITING
    noun = "pod" if len(pods) == 1 else "pods"
    message = f"waiting for {noun} {','.join(sorted(pods))} to be scheduled"
    return StorageEvent(NORMAL, "WaitForPodScheduled", message)


def _provision(
    claim: PersistentVolumeClaim, name: str, storage_class: StorageClass | None
) -> ClaimStep:
    if storage_class is None:
        return _failed(f'storageclass.storage.k8s.io "{name}" not found')
    provisioner = storage_class.provisioner
    if provisioner == LOCAL_PROVISIONER:
        return ProvisionVolume(storage_class, claim.metadata.annotations.get(SELECTED_NODE, ""))
    if provisioner.startswith(IN_TREE):
        return _failed(f"no volume plugin matched name: {provisioner}")
    return AwaitProvisioner(provisioner)


def _failed(message: str) -> LeavePending:
    return LeavePending(StorageEvent(WARNING, "ProvisioningFailed", message))


def external_provisioning(provisioner: str) -> StorageEvent:
    """Return the event for a claim whose volume another program makes."""
    message = (
        f"Waiting for a volume to be created either by the external provisioner '{provisioner}' "
        "or manually by the system administrator. If volume creation is delayed, please verify "
        "that the provisioner is running and correctly registered."
    )
    return StorageEvent(NORMAL, "ExternalProvisioning", message)
