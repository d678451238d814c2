"""The claims that a pod uses: named ones, and those that are made for it."""

from collections.abc import Iterator
from typing import NamedTuple

from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim
from kedge.api.core_v1.pod.pod import Pod


class PodClaim(NamedTuple):
    """A claim in a pod's volumes."""

    volume: str
    name: str
    is_ephemeral: bool
    """Whether it is made for the pod, and goes with it."""


def claims_of(pod: Pod) -> Iterator[PodClaim]:
    """Yield the claims of a pod's volumes."""
    for volume in pod.spec.volumes:
        if volume.persistentVolumeClaim is not None:
            yield PodClaim(volume.name, volume.persistentVolumeClaim.claimName, False)
        elif volume.ephemeral is not None:
            yield PodClaim(volume.name, ephemeral_name(pod, volume.name), True)


def ephemeral_name(pod: Pod, volume: str) -> str:
    """Return the name of the claim that is made for a volume of a pod."""
    return f"{pod.metadata.name}-{volume}"


def is_made_for(claim: PersistentVolumeClaim, pod: Pod) -> bool:
    """Whether a claim belongs to the pod."""
    owners = claim.metadata.ownerReferences
    return any(owner.uid == pod.metadata.uid and owner.controller for owner in owners)


def foreign_claim(claim: PersistentVolumeClaim, pod: Pod) -> str:
    """Return the error for a claim that has the name of a pod's, but was not made for it."""
    where = f"{claim.metadata.namespace}/{claim.metadata.name}"
    own = f"{pod.metadata.namespace}/{pod.metadata.name}"
    return f"PVC {where} was not created for pod {own} (pod is not owner)"
