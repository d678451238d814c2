"""The resource claims of pods and containers, and whether a pod may use a claim."""

from typing import NamedTuple

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.resource_v1.resource_claim import ResourceClaim
from kedge.node.resource_claims.claim_ledger import ClaimError


class PodClaimName(NamedTuple):
    """The claim of one entry in a pod's resourceClaims."""

    entry: str
    """Empty for the claim that the scheduler has made for extended resources."""
    claim: str
    is_generated: bool
    """Whether it was made for the pod, which must own it."""


def claims_of(pod: Pod) -> list[PodClaimName]:
    """Return the claims of a pod. Raises ClaimError if one is not created yet."""
    found = []
    for entry in pod.spec.resourceClaims:
        if entry.resourceClaimName is not None:
            found.append(PodClaimName(entry.name, entry.resourceClaimName, False))
        elif entry.resourceClaimTemplateName is None:
            raise ClaimError(
                f'pod "{_label(pod)}", spec.resourceClaim "{entry.name}": '
                "none of the supported fields are set"
            )
        elif name := _generated(pod, entry.name):
            found.append(PodClaimName(entry.name, name, True))
    extended = pod.status.extendedResourceClaimStatus
    if extended is not None:
        found.append(PodClaimName("", extended.resourceClaimName, False))
    return found


def _generated(pod: Pod, entry: str) -> str | None:
    """Return the claim made from a template; None if none was needed."""
    for status in pod.status.resourceClaimStatuses:
        if status.name == entry:
            return status.resourceClaimName
    raise ClaimError(f'pod "{_label(pod)}": ResourceClaim not created yet')


def requests_of(pod: Pod, container: Container) -> dict[str, list[str]]:
    """Return the requests that a container uses, by name of the claim; an empty request stands for
    all requests of the claim. Raises ClaimError if a claim is not created yet."""
    if not container.resources.claims and pod.status.extendedResourceClaimStatus is None:
        return {}
    names = {each.entry: each.claim for each in claims_of(pod) if each.entry}
    found: dict[str, list[str]] = {}
    for used in container.resources.claims:
        if used.name in names:
            found.setdefault(names[used.name], []).append(used.request)
    extended = pod.status.extendedResourceClaimStatus
    if extended is not None:
        asked = container.resources.requests
        for mapping in extended.requestMappings:
            amount = asked.get(mapping.resourceName)
            if mapping.containerName == container.name and amount is not None and amount.value():
                found.setdefault(extended.resourceClaimName, []).append(mapping.requestName)
    return found


def base_request(request: str) -> str:
    """Return the name of a request without that of its subrequest."""
    return request.partition("/")[0]


# The claim's object.


class ClaimAllocation(NamedTuple):
    """The part of a claim's object that the node needs."""

    uid: str
    drivers: tuple[str, ...]


def checked(pod: Pod, name: PodClaimName, claim: ResourceClaim) -> ClaimAllocation:
    """Check that the pod may use a claim, and that it is allocated. Raises ClaimError."""
    uid = claim.metadata.uid
    if name.is_generated:
        _check_owner(pod, claim)
    if not any(each.uid == pod.metadata.uid for each in claim.status.reservedFor):
        raise ClaimError(
            f"pod {pod.metadata.name} ({pod.metadata.uid}) is not allowed to use ResourceClaim "
            f"{name.claim} ({uid})"
        )
    allocation = claim.status.allocation
    if allocation is None:
        raise ClaimError(f"ResourceClaim {name.claim}: not allocated")
    drivers = dict.fromkeys(each.driver for each in allocation.devices.results)
    return ClaimAllocation(uid, tuple(drivers))


def _check_owner(pod: Pod, claim: ResourceClaim) -> None:
    meta = claim.metadata
    owners = (each.uid for each in meta.ownerReferences if each.controller)
    if pod.metadata.uid not in owners:
        raise ClaimError(
            f"ResourceClaim {meta.namespace}/{meta.name} was not created for Pod {_label(pod)} "
            "(Pod is not owner)"
        )


def _label(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
