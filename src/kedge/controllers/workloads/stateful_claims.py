"""StatefulClaims: creates the claims of a StatefulSet's pods and sets their retention."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from kedge.api.apps_v1.stateful_set import RESOURCE as SETS
from kedge.api.apps_v1.stateful_set import StatefulSet
from kedge.api.core_v1.persistent_volume_claim import RESOURCE, PersistentVolumeClaim
from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.model import Object, OwnerReference
from kedge.api.resource import Resource
from kedge.client.client import Client
from kedge.client.events import NORMAL, WARNING, Recorder
from kedge.controllers.pod_control import owned_by
from kedge.controllers.pod_state import is_leaving
from kedge.controllers.shared_informers import ObjectCache
from kedge.controllers.workloads.stateful_pods import claims_of, ordinal_of, ordinals
from kedge.machinery.errors import StatusError, conflict


def wanted_owners(
    owner: StatefulSet, pod: Pod, claim: PersistentVolumeClaim
) -> Sequence[OwnerReference] | None:
    """With whom a claim is to go, by the set's retention policy; None to leave it as it is."""
    references = claim.metadata.ownerReferences
    if any(_is_stale(each, SETS, owner) or _is_stale(each, PODS, pod) for each in references):
        # An earlier set or pod of that name had it; it is the garbage collector's by now.
        return None
    ours = (owner.metadata.uid, pod.metadata.uid)
    wanted = [each for each in references if each.uid not in ours]
    if not has_conflict(owner, pod, claim):
        wanted += _retention(owner, pod)
    return None if list(references) == wanted else wanted


def has_conflict(owner: StatefulSet, pod: Pod, claim: PersistentVolumeClaim) -> bool:
    """Whether a claim that the set should delete has another controller."""
    policy = owner.spec.persistentVolumeClaimRetentionPolicy
    if policy is None or "Delete" not in (policy.whenDeleted, policy.whenScaled):
        return False
    ours = (owner.metadata.uid, pod.metadata.uid)
    return any(each.controller and each.uid not in ours for each in claim.metadata.ownerReferences)


def _retention(owner: StatefulSet, pod: Pod) -> list[OwnerReference]:
    policy = owner.spec.persistentVolumeClaimRetentionPolicy
    if policy is None:
        return []
    if policy.whenScaled == "Delete" and ordinal_of(pod) not in ordinals(owner):
        return [owned_by(PODS, pod)]
    return [owned_by(SETS, owner)] if policy.whenDeleted == "Delete" else []


def _is_stale(reference: OwnerReference, resource: Resource[Any], obj: Object) -> bool:
    """Whether a reference means an earlier object of the same name."""
    same_name = reference.kind == resource.kind and reference.name == obj.metadata.name
    if not same_name or reference.apiVersion != resource.api_version:
        return False
    return reference.uid != obj.metadata.uid


class StatefulClaims:
    """Creates and updates the claims of all StatefulSets."""

    def __init__(
        self, client: Client, known: ObjectCache[PersistentVolumeClaim], recorder: Recorder
    ) -> None:
        self._client = client
        self._known = known
        self._recorder = recorder

    def of(self, owner: StatefulSet, ordinal: int) -> list[PersistentVolumeClaim]:
        """Return the existing claims of one pod."""
        names = [each.metadata.name for each in claims_of(owner, ordinal)]
        found = (self._known.get(name, owner.metadata.namespace) for name in names)
        return [each for each in found if each is not None]

    def are_leftovers(self, owner: StatefulSet, pod: Pod) -> bool:
        """Whether a claim is about to go together with an earlier pod of this name."""
        policy = owner.spec.persistentVolumeClaimRetentionPolicy
        if policy is None or policy.whenScaled != "Delete":
            return False
        return any(
            _is_stale(reference, PODS, pod)
            for claim in self.of(owner, ordinal_of(pod))
            for reference in claim.metadata.ownerReferences
        )

    async def make(self, owner: StatefulSet, pod: Pod) -> None:
        """Make the claims of a pod that are missing."""
        for claim in claims_of(owner, ordinal_of(pod)):
            known = self._known.get(claim.metadata.name, claim.metadata.namespace)
            if known is not None and is_leaving(known):
                why = f"pvc {claim.metadata.name} is being deleted"
                raise conflict(RESOURCE.group, RESOURCE.plural, claim.metadata.name, why)
            if known is None:
                await self._make(owner, pod, claim)

    async def _make(self, owner: StatefulSet, pod: Pod, claim: PersistentVolumeClaim) -> None:
        about = f"{pod.metadata.name} in StatefulSet {owner.metadata.name}"
        name = claim.metadata.name
        try:
            made = await self._client.create(RESOURCE, claim)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                message = f"Create Claim {name} for Pod {about} failed error: {error}"
                self._recorder.record(owner, WARNING, "FailedCreate", message)
            raise
        message = f"Create Claim {name} Pod {about} success"
        self._recorder.record(owner, NORMAL, "SuccessfulCreate", message)
        await self._known.written(made)

    async def hand_over(self, owner: StatefulSet, pod: Pod) -> None:
        """Give the claims of a pod the owners with which they are to go."""
        for claim in self.of(owner, ordinal_of(pod)):
            wanted = wanted_owners(owner, pod, claim)
            if wanted is None:
                continue
            if has_conflict(owner, pod, claim):
                message = (
                    f"PersistentVolumeClaim {claim.metadata.name} has a conflicting "
                    "OwnerReference that acts as a manging controller, the retention policy is "
                    "ignored for this claim"
                )
                self._recorder.record(owner, WARNING, "ConflictingController", message)
            meta = replace(claim.metadata, ownerReferences=wanted)
            changed = await self._client.update(RESOURCE, replace(claim, metadata=meta))
            await self._known.written(changed)
