"""Constraints on the devices of a claim: an attribute is the same on all, or differs on all."""

from collections.abc import Sequence

from kedge.api.resource_v1.device_request import DeviceConstraint
from kedge.api.resource_v1.resource_slice_types import Device, DeviceAttribute
from kedge.scheduler.devices.pools import DeviceID

Value = tuple[str, int | bool | str]
"""The type of an attribute and its value: `1` and `true` differ."""


class AttributeConstraint:
    """One constraint, and the values of the devices that were chosen so far."""

    def __init__(self, constraint: DeviceConstraint) -> None:
        self._requests = frozenset(constraint.requests)
        self._is_match = constraint.matchAttribute is not None
        self._name = constraint.matchAttribute or constraint.distinctAttribute or ""
        self._values: list[Value] = []

    def add(self, names: Sequence[str], device: Device, id_: DeviceID) -> bool:
        """Take a device into account for a request with these names; False if it cannot be."""
        if not self._applies(names):
            return True
        value = _value(device, id_, self._name)
        if value is None:
            return False
        if self._values and (value in self._values) != self._is_match:
            return False
        self._values.append(value)
        return True

    def remove(self, names: Sequence[str]) -> None:
        """Forget the device that was added last."""
        if self._applies(names):
            self._values.pop()

    def _applies(self, names: Sequence[str]) -> bool:
        return not self._requests or not self._requests.isdisjoint(names)


def _value(device: Device, id_: DeviceID, name: str) -> Value | None:
    attribute = device.attributes.get(name)
    domain, _, identifier = name.partition("/")
    if attribute is None and domain == id_.driver:
        attribute = device.attributes.get(identifier)
    return typed_value(attribute) if attribute is not None else None


def typed_value(attribute: DeviceAttribute) -> Value | None:
    values = {
        "string": attribute.string,
        "int": attribute.int_,
        "bool": attribute.bool_,
        "version": attribute.version,
    }
    return next(((kind, value) for kind, value in values.items() if value is not None), None)
