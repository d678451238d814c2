"""Rules for the parts of a capacity that claims may consume."""

from collections.abc import Iterator, Sequence

from kedge.api.core_v1.nesting import within
from kedge.api.resource_v1 import sizes
from kedge.api.resource_v1.name_validation import validate_set
from kedge.api.resource_v1.resource_slice_types import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    DeviceCapacity,
)
from kedge.machinery.errors import FieldError
from kedge.machinery.quantity import Quantity


def validate_shared_capacity(capacity: DeviceCapacity) -> Iterator[FieldError]:
    """Everything wrong with a capacity of a device that several claims may share."""
    if capacity.requestPolicy is not None:
        yield from within("requestPolicy", _policy(capacity.value, capacity.requestPolicy))


def validate_unshared_capacity(capacity: DeviceCapacity) -> Iterator[FieldError]:
    if capacity.requestPolicy is not None:
        yield FieldError.forbidden("requestPolicy", "allowMultipleAllocations must be true")


def _policy(most: Quantity, policy: CapacityRequestPolicy) -> Iterator[FieldError]:
    if policy.validValues and policy.validRange is not None:
        why = (
            'exactly one policy can be specified, cannot specify "validValues" and "validRange" '
            "at the same time"
        )
        yield FieldError.forbidden("", why)
    elif policy.validValues:
        if policy.default is None:
            yield FieldError.required("default", "required when validValues is defined")
        else:
            yield from _values(policy.default, most, policy.validValues)
    elif policy.validRange is not None:
        if policy.default is None:
            yield FieldError.required("default", "required when validRange is defined")
        else:
            yield from within("validRange", _range(policy.default, most, policy.validRange))


def _values(default: Quantity, most: Quantity, values: Sequence[Quantity]) -> Iterator[FieldError]:
    for i in range(1, len(values)):
        if values[i - 1] > values[i]:
            why = "values must be sorted in ascending order"
            yield FieldError.invalid(f"validValues[{i}]", str(values[i]), why)

    def fits(value: Quantity) -> Iterator[FieldError]:
        if value > most:
            why = f"option is larger than capacity value: {most}"
            yield FieldError.invalid("", str(value), why)

    yield from validate_set(
        "validValues", values, sizes.POLICY_VALUES, fits, lambda each: str(each.value())
    )
    if default not in values:
        why = "default value is not valid according to the requestPolicy"
        yield FieldError.invalid("validValues", str(default), why)


def _range(
    default: Quantity, capacity: Quantity, valid: CapacityRequestPolicyRange
) -> Iterator[FieldError]:
    least, most, step = valid.min, valid.max, valid.step
    if least is None:
        yield FieldError.required("min", "required when validRange is defined")
        return
    if least > capacity:
        why = f"min is larger than capacity value: {capacity}"
        yield FieldError.invalid("min", str(least), why)
    if default < least:
        yield FieldError.invalid("min", str(default), f"default is less than min: {least}")
    if most is not None:
        if least > most:
            yield FieldError.invalid("max", str(least), f"min is larger than max: {most}")
        if most > capacity:
            why = f"max is larger than capacity value: {capacity}"
            yield FieldError.invalid("max", str(most), why)
        if default > most:
            yield FieldError.invalid("max", str(default), f"default is more than max: {most}")
    if step is not None:
        if least + step > capacity:
            why = f"one step {least + step} is larger than capacity value: {capacity}"
            yield FieldError.invalid("step", str(step), why)
        for value in (default, most):
            if value is not None:
                yield from _on_step(value, least, step)


def _on_step(value: Quantity, least: Quantity, step: Quantity) -> Iterator[FieldError]:
    # A step of zero makes the server of Kubernetes fail; here it is a step that nothing fits.
    if not step.value() or (value.value() - least.value()) % step.value():
        why = f"value is not a multiple of a given step ({step}) from ({least})"
        yield FieldError.invalid("step", str(value), why)
