"""DynamicResources: the claims of a pod must exist, and be allocated or allocatable on the node."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from kedge.api.resource_v1.claim_conditions import binding_failure
from kedge.api.resource_v1.device_request import DeviceRequest
from kedge.api.resource_v1.pod_claims import ClaimMissing
from kedge.api.resource_v1.resource_claim import ResourceClaim
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.devices.device_state import DeviceState
from kedge.scheduler.devices.pools import selects
from kedge.scheduler.filters.filter import Check, NodeRejection, Prepared
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.snapshot import Snapshot

UNAVAILABLE: Final = NodeRejection(("resourceclaim not available on the node",), final=True)


def prepare(demand: PodDemand, snapshot: Snapshot) -> Prepared:
    if not demand.pod.spec.resourceClaims:
        return None
    devices = snapshot.devices
    try:
        claims = devices.claims_of(demand.pod)
    except ClaimMissing as missing:
        return _refused(str(missing))
    waiting = [claim for claim in claims if claim.status.allocation is None]
    for claim in waiting:
        if devices.is_pending(claim):
            where = f"{claim.metadata.namespace}/{claim.metadata.name}"
            return _refused(f"resource claim {where} is in the process of being allocated")
        for name, class_ in _classes(claim.spec.devices.requests):
            if devices.classes.get(class_) is None:
                return _refused(f"request {name}: device class {class_} does not exist")
    if not claims:
        return None
    return _check(demand, devices, waiting, unavailable_on(claims, devices))


def _refused(reason: str) -> NodeRejection:
    return NodeRejection((reason,), final=True)


def _classes(requests: Sequence[DeviceRequest]) -> Iterator[tuple[str, str]]:
    """Yield the name of each request or alternative, and its class."""
    for request in requests:
        if request.exactly is not None:
            yield request.name, request.exactly.deviceClassName
        for each in request.firstAvailable:
            yield f"{request.name}/{each.name}", each.deviceClassName


def unavailable_on(
    claims: Sequence[ResourceClaim], devices: DeviceState
) -> Callable[[NodeState], list[ResourceClaim]]:
    """Return what finds the allocated claims that cannot be used on a node."""
    selectors = [
        (claim, claim.status.allocation.nodeSelector)
        for claim in claims
        if claim.status.allocation is not None
    ]
    failed = [
        claim
        for claim in claims
        if claim.metadata.uid in devices.overdue or binding_failure(claim) is not None
    ]

    def find(node: NodeState) -> list[ResourceClaim]:
        elsewhere = [
            claim
            for claim, selector in selectors
            if selector is not None and not selects(selector, node.name, node.labels)
        ]
        return elsewhere + failed

    return find


def _check(
    demand: PodDemand,
    devices: DeviceState,
    waiting: Sequence[ResourceClaim],
    unavailable: Callable[[NodeState], list[ResourceClaim]],
) -> Check:
    def check(node: NodeState) -> NodeRejection | None:
        if waiting:
            proposal = devices.propose(demand.uid, waiting, node.name, node.labels)
            if proposal.refusal:
                return _refused(proposal.refusal)
        return UNAVAILABLE if unavailable(node) else None

    return check
