"""The quota usage of a ResourceClaim: its count, and the maximum of devices of each class."""

from collections.abc import Iterable

from kedge.api.quota.count import count_name
from kedge.api.quota.extended_names import IMPLICIT_PREFIX
from kedge.api.quota.measure import ONE, ZERO, QuotaMeasure
from kedge.api.resource_v1.device_request import (
    ALL,
    EXACT_COUNT,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    alternatives,
)
from kedge.api.resource_v1.extended_resources import CLAIM_ANNOTATION
from kedge.api.resource_v1.resource_claim import ResourceClaim
from kedge.machinery.quantity import Quantity

_COUNT = count_name("resource.k8s.io", "resourceclaims")
_OF_CLASS = ".deviceclass.resource.k8s.io/devices"
_ALL = 32
"""The most devices that one claim can be given, and so what asking for all of them counts as."""
_POD = ("v1", "Pod")
_NO_SCOPES: frozenset[str] = frozenset()


class ResourceClaimQuotaMeter:
    """The meter of claims to devices."""

    known = _NO_SCOPES
    looks = True

    def names(self, hard: Iterable[str]) -> frozenset[str]:
        return frozenset(name for name in hard if name == _COUNT or name.endswith(_OF_CLASS))

    def measure(self, obj: ResourceClaim) -> QuotaMeasure:
        usage = {_COUNT: ONE}
        for request in obj.spec.devices.requests:
            for class_, devices in _at_most(request).items():
                name = class_ + _OF_CLASS
                usage[name] = usage.get(name, ZERO) + Quantity.from_value(devices)
                implicit = IMPLICIT_PREFIX + class_
                usage[implicit] = usage[name]
        return QuotaMeasure(usage, {}, covered_by=_pod_with_resources(obj))

    def missing(self, obj: ResourceClaim, names: Iterable[str]) -> str:
        return ""


def _pod_with_resources(claim: ResourceClaim) -> str:
    """Return the pod for whose extended resources the claim was made; empty if for none."""
    meta = claim.metadata
    if meta.annotations.get(CLAIM_ANNOTATION) != "true":
        return ""
    owners = (each for each in meta.ownerReferences if each.controller)
    return next((each.name for each in owners if (each.apiVersion, each.kind) == _POD), "")


def _at_most(request: DeviceRequest) -> dict[str, int]:
    """Devices by class: of alternatives, each class counts with the largest that names it."""
    most: dict[str, int] = {}
    for wish in alternatives(request):
        class_ = wish.deviceClassName
        most[class_] = max(most.get(class_, 0), _devices(wish))
    return most


def _devices(wish: ExactDeviceRequest | DeviceSubRequest) -> int:
    if wish.allocationMode == EXACT_COUNT:
        return wish.count
    # A mode from a later release: the number of devices is unknown.
    return _ALL if wish.allocationMode == ALL else 0
