"""DynamicResources: the claims of a pod must exist, and be allocated or allocatable on the node."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from kedge.api.resource_v1.claim_conditions import binding_failure
from kedge.api.resource_v1.device_request import DeviceRequest
from kedge.api.resource_v1.extended_resources import may_have_class
from kedge.api.resource_v1.pod_claims import ClaimMissing
from kedge.api.resource_v1.resource_claim import ResourceClaim
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.devices.device_state import DeviceState
from kedge.scheduler.devices.extended_resources import (
    ExtendedResourceClaim,
    extended_resource_claim,
)
from kedge.scheduler.devices.pools import selects
from kedge.scheduler.filters.filter import Check, NodeRejection, Prepared
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.snapshot import Snapshot

UNAVAILABLE: Final = NodeRejection(("resourceclaim not available on the node",), final=True)
STALE: Final = NodeRejection(("cannot schedule extended resource claim",), final=True)
"""A claim for extended resources is left of an earlier attempt; it is deleted."""


def prepare(demand: PodDemand, snapshot: Snapshot) -> Prepared:
    devices = snapshot.devices
    classes = resource_classes(demand, devices)
    if not classes and not demand.pod.spec.resourceClaims:
        return None
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
    made = devices.resource_claim_of(demand.pod)
    if made is not None:
        if not snapshot.home(demand.uid):
            return lambda _: STALE
        # A pod that has a node is asked about: its own claim stays where it is.
        claims, classes = [*claims, made], {}
    if not claims and not classes:
        return None
    return _check(demand, devices, waiting, unavailable_on(claims, devices), classes)


def resource_classes(demand: PodDemand, devices: DeviceState) -> dict[str, str]:
    """Return the extended resources of a pod that devices can provide, and their classes."""
    found = ((name, devices.class_of(name)) for name, _ in demand.others if may_have_class(name))
    return {name: class_.metadata.name for name, class_ in found if class_ is not None}


def resource_claim(
    demand: PodDemand, node: NodeState, classes: Mapping[str, str]
) -> ExtendedResourceClaim | None:
    """Return the claim for the extended resources that no device plugin of a node provides."""
    missing = {name: each for name, each in classes.items() if not node.allocatable.get(name)}
    return extended_resource_claim(demand.pod, missing) if missing else None


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
    classes: Mapping[str, str],
) -> Check:
    def check(node: NodeState) -> NodeRejection | None:
        extended = resource_claim(demand, node, classes)
        wanted = waiting if extended is None else [*waiting, extended.claim]
        if wanted:
            proposal = devices.propose(demand.uid, wanted, node.name, node.labels)
            if proposal.refusal:
                return NodeRejection((proposal.refusal,), True, proposal.is_error)
        return UNAVAILABLE if unavailable(node) else None

    return check
