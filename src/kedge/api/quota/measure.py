"""QuotaMeasure: the quota usage of one object, and its scopes."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Protocol

import msgspec

from kedge.api.core_v1.resource_quota import ScopedResourceSelectorRequirement
from kedge.machinery.quantity import Quantity

Usage = Mapping[str, Quantity]
"""Amounts by the names that a quota bounds them under."""

ZERO = Quantity.from_value(0)
ONE = Quantity.from_value(1)


class QuotaMeasure(msgspec.Struct, frozen=True):
    """The usage of one object in one state."""

    usage: Usage
    scopes: Mapping[str, Iterable[str]]
    """The scopes that the object is in, and the values it has there, where a scope has values."""
    until: datetime | None = None
    """When the usage falls without anybody writing the object; None if it does not."""
    after: Usage | None = None
    """The usage from then on."""
    covered_by: str = ""
    """The pod whose own usage has the extended resources of the object already."""

    def at(self, now: datetime) -> Usage:
        """Return the usage of the object at a time."""
        if self.until is None or self.after is None or now <= self.until:
            return self.usage
        return self.after


class QuotaMeter(Protocol):
    """Measures the objects of one resource."""

    known: frozenset[str]
    """The scopes that objects of the resource can be in; a quota with another never counts them."""
    looks: bool
    """Whether the objects themselves matter, or only how many there are."""

    def names(self, hard: Iterable[str]) -> frozenset[str]:
        """Return the names of a quota that count objects of the resource."""
        ...

    def measure(self, obj: Any) -> QuotaMeasure:
        """Return the usage of an object; without `looks`, that of any object."""
        ...

    def missing(self, obj: Any, names: Iterable[str]) -> str:
        """Return the fields that the object must set to be counted and does not."""
        ...


def matches(
    requirement: ScopedResourceSelectorRequirement, meter: QuotaMeter, scopes: Mapping[str, Any]
) -> bool:
    """Whether an object in these scopes meets one condition of a quota."""
    if requirement.scopeName not in meter.known:
        return False
    values = scopes.get(requirement.scopeName)
    if values is None:
        return requirement.operator in ("NotIn", "DoesNotExist")
    match requirement.operator:
        case "In":
            return any(value in requirement.values for value in values)
        case "NotIn":
            return any(value not in requirement.values for value in values)
        case operator:
            return operator == "Exists"
