"""The allocation that is written into a claim: devices, configuration, and the nodes to use."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from kedge.api.core_v1.node_selection import NAME_FIELD
from kedge.api.core_v1.pod.affinity import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from kedge.api.resource_v1.device_request import ExactDeviceRequest
from kedge.api.resource_v1.resource_claim import ResourceClaim
from kedge.api.resource_v1.resource_claim_status import (
    FROM_CLAIM,
    FROM_CLASS,
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
)
from kedge.scheduler.devices.device_search import ChosenDevice, ClaimChoice


def allocation_of(
    claim: ResourceClaim, choice: ClaimChoice, node: str, share_id: Callable[[], str]
) -> AllocationResult:
    """Return the allocation of a claim for chosen devices."""
    return AllocationResult(
        devices=DeviceAllocationResult(
            results=[_result(each, share_id) for each in choice.devices] or (),
            config=[*_class_configuration(choice), *_claim_configuration(claim, choice)] or (),
        ),
        nodeSelector=_node_selector(choice.devices, node),
    )


def _result(chosen: ChosenDevice, share_id: Callable[[], str]) -> DeviceRequestAllocationResult:
    wish, device = chosen.wish, chosen.device
    is_admin = isinstance(wish, ExactDeviceRequest) and wish.adminAccess
    return DeviceRequestAllocationResult(
        request=chosen.request,
        driver=chosen.id.driver,
        pool=chosen.id.pool,
        device=chosen.id.device,
        adminAccess=True if is_admin else None,
        tolerations=wish.tolerations or (),
        bindingConditions=device.bindingConditions or (),
        bindingFailureConditions=device.bindingFailureConditions or (),
        shareID=share_id() if chosen.consumed is not None else None,
        consumedCapacity=chosen.consumed or {},
    )


def _class_configuration(choice: ClaimChoice) -> list[DeviceAllocationConfiguration]:
    """Return the configuration of each class, with the requests that use the class."""
    users: dict[str, list[str]] = {}
    for name, class_ in choice.requests:
        users.setdefault(class_.metadata.name, []).append(name)
    classes = {class_.metadata.name: class_ for _, class_ in choice.requests}
    return [
        DeviceAllocationConfiguration(source=FROM_CLASS, requests=users[name], opaque=each.opaque)
        for name, class_ in classes.items()
        for each in class_.spec.config
    ]


def _claim_configuration(
    claim: ResourceClaim, choice: ClaimChoice
) -> list[DeviceAllocationConfiguration]:
    """Return the claim's own configuration, without that of alternatives that were not chosen."""
    found: list[DeviceAllocationConfiguration] = []
    for config in claim.spec.devices.config:
        entry = DeviceAllocationConfiguration(
            source=FROM_CLAIM, requests=config.requests or (), opaque=config.opaque
        )
        if not config.requests:
            found.append(entry)
            continue
        for request, (chosen, _) in zip(claim.spec.devices.requests, choice.requests, strict=True):
            if request.name in config.requests or chosen in config.requests:
                found.append(entry)
    return found


def _node_selector(devices: Sequence[ChosenDevice], node: str) -> NodeSelector | None:
    """Return the nodes that reach all the devices; None if all nodes do."""
    term = NodeSelectorTerm()
    for chosen in devices:
        spec = chosen.slice.spec
        source = chosen.device if spec.perDeviceNodeSelection else spec
        if source.nodeName is not None or chosen.device.bindsToNode:
            return _one_node(node)
        for each in source.nodeSelector.nodeSelectorTerms[:1] if source.nodeSelector else ():
            term = replace(
                term,
                matchFields=_joined(term.matchFields, each.matchFields),
                matchExpressions=_joined(term.matchExpressions, each.matchExpressions),
            )
    if not term.matchFields and not term.matchExpressions:
        return None
    return NodeSelector(nodeSelectorTerms=[term])


def _one_node(node: str) -> NodeSelector:
    field = NodeSelectorRequirement(key=NAME_FIELD, operator="In", values=[node])
    return NodeSelector(nodeSelectorTerms=[NodeSelectorTerm(matchFields=[field])])


def _joined(
    known: Sequence[NodeSelectorRequirement], more: Sequence[NodeSelectorRequirement]
) -> Sequence[NodeSelectorRequirement]:
    found = {(each.key, each.operator, frozenset(each.values)): each for each in (*known, *more)}
    return list(found.values()) or ()
