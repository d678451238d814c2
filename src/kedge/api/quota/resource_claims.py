"""The quota usage of a ResourceClaim: its count, and the maximum of devices of each class."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kedge.api.builtin.content import listed, reach, text
from kedge.api.model import Document
from kedge.api.quota.count import count_name
from kedge.api.quota.measure import ONE, ZERO, QuotaMeasure
from kedge.machinery.quantity import Quantity

_COUNT = count_name("resource.k8s.io", "resourceclaims")
_OF_CLASS = ".deviceclass.resource.k8s.io/devices"
_ALL = 32
"""The most devices that one claim can be given, and so what asking for all of them counts as."""
_NO_SCOPES: frozenset[str] = frozenset()


class ResourceClaimQuotaMeter:
    """The meter of claims to devices."""

    known = _NO_SCOPES
    looks = True

    def names(self, hard: Iterable[str]) -> frozenset[str]:
        return frozenset(name for name in hard if name == _COUNT or name.endswith(_OF_CLASS))

    def measure(self, obj: Document) -> QuotaMeasure:
        usage = {_COUNT: ONE}
        for request in listed(obj.content, "spec.devices.requests"):
            for class_, devices in _at_most(request).items():
                name = class_ + _OF_CLASS
                usage[name] = usage.get(name, ZERO) + Quantity.from_value(devices)
        return QuotaMeasure(usage, {})

    def missing(self, obj: Document, names: Iterable[str]) -> str:
        return ""


def _at_most(request: Mapping[str, Any]) -> dict[str, int]:
    """Devices by class: of alternatives, each class counts with the largest that names it."""
    most: dict[str, int] = {}
    for wish in _wishes(request):
        class_ = text(wish, "deviceClassName")
        most[class_] = max(most.get(class_, 0), _devices(wish))
    return most


def _wishes(request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Return the alternatives of a request; one of them has to be met."""
    if alternatives := listed(request, "firstAvailable"):
        yield from alternatives
    elif (exactly := reach(request, "exactly")) is not None:
        yield exactly


def _devices(wish: Mapping[str, Any]) -> int:
    match text(wish, "allocationMode"):
        case "ExactCount":
            return int(reach(wish, "count", 0))
        case "All":
            return _ALL
        case _:
            # A mode from a later release: the number of devices is unknown.
            return 0
