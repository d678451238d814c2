"""The claims of a pod: their names, their owner, and the pod as their consumer."""

from collections.abc import Iterator
from typing import Final

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.spec import PodResourceClaim
from kedge.api.resource_v1.resource_claim import ResourceClaim
from kedge.api.resource_v1.resource_claim_status import ResourceClaimConsumerReference

NOT_CREATED: Final = "ResourceClaim not created yet"


class ClaimMissing(Exception):
    """A claim that a pod needs does not exist, or does not belong to it."""


def claim_name(pod: Pod, podclaim: PodResourceClaim) -> str | None:
    """Return the claim of an entry of a pod's resourceClaims; None if the pod needs none.

    Raises ClaimMissing if the claim is to be made from a template and the pod's status does not
    have its name yet.
    """
    if podclaim.resourceClaimName is not None:
        return podclaim.resourceClaimName
    for status in pod.status.resourceClaimStatuses:
        if status.name == podclaim.name:
            return status.resourceClaimName
    meta = pod.metadata
    raise ClaimMissing(f'pod "{meta.namespace}/{meta.name}": {NOT_CREATED}')


def known_names(pod: Pod) -> Iterator[str]:
    """Yield the names of a pod's claims, without those that are not made yet. The last is that for
    its extended resources."""
    for podclaim in pod.spec.resourceClaims:
        try:
            name = claim_name(pod, podclaim)
        except ClaimMissing:
            continue
        if name is not None:
            yield name
    if pod.status.extendedResourceClaimStatus is not None:
        yield pod.status.extendedResourceClaimStatus.resourceClaimName


def check_owner(pod: Pod, podclaim: PodResourceClaim, claim: ResourceClaim) -> None:
    """Raise ClaimMissing if a claim that was made from a template was made for another pod."""
    if podclaim.resourceClaimName is not None or is_owned(claim, pod):
        return
    own, its = pod.metadata, claim.metadata
    raise ClaimMissing(
        f"ResourceClaim {its.namespace}/{its.name} was not created for "
        f"Pod {own.namespace}/{own.name} (Pod is not owner)"
    )


def is_owned(claim: ResourceClaim, pod: Pod) -> bool:
    uid = pod.metadata.uid
    return any(each.controller and each.uid == uid for each in claim.metadata.ownerReferences)


def is_reserved(claim: ResourceClaim, pod: Pod) -> bool:
    return any(each.uid == pod.metadata.uid for each in claim.status.reservedFor)


def consumer(pod: Pod) -> ResourceClaimConsumerReference:
    """Return the entry of a pod in the reservedFor of its claims."""
    return ResourceClaimConsumerReference(
        resource="pods", name=pod.metadata.name, uid=pod.metadata.uid
    )


def needs_no_claims(pod: Pod) -> bool:
    """Whether a pod has ended, or will never start."""
    if pod.status.phase in ("Succeeded", "Failed"):
        return True
    return bool(pod.metadata.deletionTimestamp) and not pod.spec.nodeName
