"""The claims that a pod takes when it gets a node: their allocations, and the pod as consumer."""

import uuid
from collections.abc import Sequence
from typing import NamedTuple

from kedge.api.core_v1.pod.status import ContainerExtendedResourceRequest
from kedge.api.resource_v1.pod_claims import is_reserved
from kedge.api.resource_v1.resource_claim import ResourceClaim
from kedge.api.resource_v1.resource_claim_status import AllocationResult
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.devices.allocation import allocation_of
from kedge.scheduler.filters.dynamic_resources import resource_claim, resource_classes
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.snapshot import Snapshot


class ClaimReservation(NamedTuple):
    """A claim that a pod is about to use, and its allocation if it has none yet."""

    claim: ResourceClaim
    allocation: AllocationResult | None
    mappings: Sequence[ContainerExtendedResourceRequest] = ()
    """With them it is for extended resources, and is to be created."""


def claim_reservations(
    demand: PodDemand, node: NodeState, snapshot: Snapshot
) -> list[ClaimReservation]:
    """Return the claims to write for a pod, with the devices that were proposed on its node."""
    devices = snapshot.devices
    classes = resource_classes(demand, devices)
    if not demand.pod.spec.resourceClaims and not classes:
        return []
    claims, proposal = devices.claims_of(demand.pod), devices.proposal(demand.uid, node.name)
    choices = iter(proposal.choices if proposal is not None else ())
    found: list[ClaimReservation] = []
    for claim in claims:
        if claim.status.allocation is None:
            allocation = allocation_of(claim, next(choices), node.name, _share_id)
            found.append(ClaimReservation(claim, allocation))
        elif not is_reserved(claim, demand.pod):
            found.append(ClaimReservation(claim, None))
    extended = resource_claim(demand, node, classes)
    if extended is not None:
        allocation = allocation_of(extended.claim, next(choices), node.name, _share_id)
        found.append(ClaimReservation(extended.claim, allocation, extended.mappings))
    return found


def _share_id() -> str:
    return str(uuid.uuid4())
