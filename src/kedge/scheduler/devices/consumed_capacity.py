"""Parts of a device's capacity that claims consume, rounded as the device's policy says."""

from collections.abc import Mapping

from kedge.api.resource_v1.resource_slice_types import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Device,
    DeviceCapacity,
)
from kedge.machinery.quantity import Format, Quantity

Amounts = Mapping[str, Quantity]


def consumed_amounts(requested: Amounts, device: Device) -> dict[str, Quantity]:
    """Return how much a request consumes of each capacity of a device."""
    return {
        name: _consumed(requested.get(name), capacity) for name, capacity in device.capacity.items()
    }


def fits(requested: Amounts, device: Device, *taken: Amounts) -> bool:
    """Whether a device has what a request consumes, besides what is taken."""
    if not requested.keys() <= device.capacity.keys():
        return False
    for name, amount in consumed_amounts(requested, device).items():
        capacity = device.capacity[name]
        if _violates(amount, capacity.requestPolicy):
            return False
        for each in taken:
            if name in each:
                amount = amount + each[name]
        if amount > capacity.value:
            return False
    return True


def _consumed(requested: Quantity | None, capacity: DeviceCapacity) -> Quantity:
    policy = capacity.requestPolicy
    if requested is None:
        default = policy.default if policy is not None else None
        return default if default is not None else capacity.value
    if policy is None:
        return requested
    if policy.validRange is not None and policy.validRange.min is not None:
        return _rounded(requested, policy.validRange.min, policy.validRange)
    return next((each for each in policy.validValues if requested <= each), requested)


def _rounded(requested: Quantity, least: Quantity, valid: CapacityRequestPolicyRange) -> Quantity:
    if requested < least:
        return least
    step = valid.step.value() if valid.step is not None else 0
    if not step:
        return requested
    steps = -((least.value() - requested.value()) // step)
    return Quantity.from_value(least.value() + step * steps, Format.BINARY_SI)


def _violates(amount: Quantity, policy: CapacityRequestPolicy | None) -> bool:
    if policy is None or (policy.default is not None and amount == policy.default):
        return False
    valid = policy.validRange
    if valid is not None:
        if valid.max is not None and amount > valid.max:
            return True
        step = valid.step.value() if valid.step is not None else 0
        least = valid.min.value() if valid.min is not None else 0
        return bool(step) and (amount.value() - least) % step != 0
    return bool(policy.validValues) and amount not in policy.validValues
