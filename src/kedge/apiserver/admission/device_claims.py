"""DeviceClaims: admin access only in labelled namespaces, and rights for parts of a claim's status.

Always enabled, as in Kubernetes, where the registry checks the same. It also records when the taint
of a device was added.
"""

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from kedge.api.core_v1.namespace import RESOURCE as NAMESPACES
from kedge.api.core_v1.node_selection import NAME_FIELD
from kedge.api.model import Object
from kedge.api.resource_v1.claim_status_validation import shared_device_id
from kedge.api.resource_v1.device_request import DeviceRequest
from kedge.api.resource_v1.resource_claim import ADMIN_ACCESS, ResourceClaim
from kedge.api.resource_v1.resource_claim_status import (
    AllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaimStatus,
)
from kedge.api.resource_v1.resource_claim_template import ResourceClaimTemplate
from kedge.api.resource_v1.resource_slice import ResourceSlice
from kedge.api.resource_v1.resource_slice_types import Device
from kedge.apiserver.admission.chain import Attempt
from kedge.apiserver.authentication.service_accounts import NODE_NAME
from kedge.apiserver.authorization.attributes import Attributes, denied
from kedge.apiserver.authorization.authorizer import Authorizer
from kedge.apiserver.request import User
from kedge.apiserver.watchcache import Item
from kedge.machinery.clock import Clock
from kedge.machinery.durations import format_time
from kedge.machinery.errors import FieldError, invalid

_ACCOUNTS = "system:serviceaccount:"


class DeviceClaims:
    """Refuses admin access and status writes that the user or the namespace does not allow."""

    name = "DeviceClaims"

    def __init__(
        self, find: Callable[[str], Item | None], authorizer: Authorizer, clock: Clock
    ) -> None:
        """`find` gives a namespace by name."""
        self._find = find
        self._authorizer = authorizer
        self._clock = clock

    async def mutate(self, attempt: Attempt) -> Object | None:
        obj = attempt.object
        if isinstance(obj, ResourceSlice) and any(each.taints for each in obj.spec.devices):
            now = format_time(self._clock.now())
            devices = [_with_times(each, now) for each in obj.spec.devices]
            return replace(obj, spec=replace(obj.spec, devices=devices))
        return obj

    async def validate(self, attempt: Attempt) -> None:
        errors = list(self._errors(attempt))
        if errors:
            resource, obj = attempt.request.resource, attempt.object
            name = obj.metadata.name if obj is not None else ""
            raise invalid(resource.group, resource.kind, name, errors)

    def _errors(self, attempt: Attempt) -> Iterator[FieldError]:
        obj, old = attempt.object, attempt.old
        if attempt.operation == "CREATE" and isinstance(obj, ResourceClaim):
            yield from self._admin(attempt, _admin_request(obj.spec.devices.requests))
        elif attempt.operation == "CREATE" and isinstance(obj, ResourceClaimTemplate):
            yield from self._admin(attempt, _admin_request(obj.spec.spec.devices.requests))
        elif attempt.request.subresource == "status" and isinstance(obj, ResourceClaim):
            assert isinstance(old, ResourceClaim)
            if not _admin_result(old.status.allocation):
                yield from self._admin(attempt, _admin_result(obj.status.allocation))
            yield from self._binding(attempt, obj.status, old.status)
            if obj.status.allocation is not None:
                yield from self._devices(attempt, obj.status, old.status)

    def _admin(self, attempt: Attempt, path: str) -> Iterator[FieldError]:
        if not path:
            return
        found = self._find(attempt.request.namespace)
        labels = NAMESPACES.decode(found.body).metadata.labels if found is not None else {}
        if labels.get(ADMIN_ACCESS) != "true":
            why = (
                f"admin access to devices requires the `{ADMIN_ACCESS}: true` label on the "
                "containing namespace"
            )
            yield FieldError.forbidden(path, why)

    def _binding(
        self, attempt: Attempt, new: ResourceClaimStatus, old: ResourceClaimStatus
    ) -> Iterator[FieldError]:
        if new.allocation == old.allocation and list(new.reservedFor) == list(old.reservedFor):
            return
        request = attempt.request
        asked = _attributes(attempt, request.verb, "binding")
        if refusal := self._refusal(asked):
            why = (
                'changing status.allocation or status.reservedFor requires resource="'
                f'resourceclaims/binding", verb="{request.verb}" permission: {refusal}'
            )
            yield FieldError.forbidden("status.allocation", why)

    def _devices(
        self, attempt: Attempt, new: ResourceClaimStatus, old: ResourceClaimStatus
    ) -> Iterator[FieldError]:
        request = attempt.request
        verbs = [f"arbitrary-node:{request.verb}"]
        if _is_on_node(request.user, _node_name(new.allocation)):
            verbs.insert(0, f"associated-node:{request.verb}")
        for driver in sorted(_changed_drivers(new, old)):
            refusals = [
                self._refusal(
                    _attributes(attempt, verb, "driver", name=driver, namespace=request.namespace)
                )
                for verb in verbs
            ]
            if all(refusals):
                why = (
                    'changing status.devices requires resource="resourceclaims/driver", '
                    f'verb="[{" ".join(verbs)}]" permission: {refusals[0]}'
                )
                yield FieldError.forbidden("status.devices", why)

    def _refusal(self, asked: Attributes) -> str:
        decision = self._authorizer.decide(asked)
        return "" if decision.allowed else str(denied(asked, decision.reason))


def _attributes(
    attempt: Attempt, verb: str, part: str, *, name: str = "", namespace: str = ""
) -> Attributes:
    resource = attempt.request.resource
    return Attributes(
        user=attempt.request.user,
        verb=verb,
        group=resource.group,
        version=resource.version,
        plural=resource.plural,
        subresource=part,
        namespace=namespace,
        name=name,
    )


def _admin_request(requests: Sequence[DeviceRequest]) -> str:
    """Return the path of the first request for admin access; upstream's path lacks `exactly`."""
    for i, request in enumerate(requests):
        if request.exactly is not None and request.exactly.adminAccess:
            return f"spec.devices.requests[{i}].adminAccess"
    return ""


def _admin_result(allocation: AllocationResult | None) -> str:
    results: Sequence[DeviceRequestAllocationResult] = ()
    if allocation is not None:
        results = allocation.devices.results
    for i, result in enumerate(results):
        if result.adminAccess:
            return f"status.allocation.devices.results[{i}].adminAccess"
    return ""


def _changed_drivers(new: ResourceClaimStatus, old: ResourceClaimStatus) -> set[str]:
    """Return the drivers of devices whose state was added, changed or removed."""
    before = {shared_device_id(each): each for each in old.devices}
    after = {shared_device_id(each): each for each in new.devices}
    keys = before.keys() | after.keys()
    return {key.driver for key in keys if before.get(key) != after.get(key)}


def _node_name(allocation: AllocationResult | None) -> str:
    """Return the only node of an allocation, if its selector is of that form."""
    selector = allocation.nodeSelector if allocation is not None else None
    if selector is None or len(selector.nodeSelectorTerms) != 1:
        return ""
    [term] = selector.nodeSelectorTerms
    if term.matchExpressions or len(term.matchFields) != 1:
        return ""
    [field] = term.matchFields
    is_name = field.key == NAME_FIELD and field.operator == "In" and len(field.values) == 1
    return field.values[0] if is_name else ""


def _is_on_node(user: User, node: str) -> bool:
    """Whether a user is the service account of a pod on a node."""
    if not node or not user.name.startswith(_ACCOUNTS):
        return False
    return dict(user.extra).get(NODE_NAME) == (node,)


def _with_times(device: Device, now: str) -> Device:
    if all(each.timeAdded for each in device.taints):
        return device
    taints = [replace(each, timeAdded=each.timeAdded or now) for each in device.taints]
    return replace(device, taints=taints)
