"""CEL conditions on devices: compiled once, matched against the devices of slices."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kedge.api.resource_v1 import sizes
from kedge.api.resource_v1.device_request import DeviceSelector
from kedge.api.resource_v1.resource_slice_types import Device, DeviceAttribute
from kedge.machinery.cel import CelError
from kedge.machinery.errors import FieldError

if TYPE_CHECKING:
    from kedge.machinery.cel import CelCondition


@lru_cache(maxsize=512)
def compiled(expression: str) -> "CelCondition":
    """Return an expression about `device`; raises CelError."""
    # Not above: most programs that read claims compile no expressions.
    from kedge.machinery.cel import CelCondition, uses

    return CelCondition(expression, uses.device_selector(), allow_dyn=True)


def validate_selector(selector: DeviceSelector) -> Iterator[FieldError]:
    """Everything wrong with a new condition."""
    if selector.cel is None:
        yield FieldError.required("cel")
        return
    expression = selector.cel.expression
    if len(expression.encode()) > sizes.EXPRESSION_CHARACTERS:
        yield FieldError.too_long("cel.expression", sizes.EXPRESSION_CHARACTERS)
        return
    try:
        cost = estimated_cost(expression)
    except CelError as error:
        yield FieldError.invalid("cel.expression", expression, str(error))
        return
    if cost > sizes.EXPRESSION_COST:
        yield FieldError.forbidden("cel.expression", "too complex, exceeds cost limit")


@lru_cache(maxsize=512)
def estimated_cost(expression: str) -> int:
    """Return the most that an expression costs for one device; raises CelError."""
    return compiled(expression).estimate(_largest_size)


def _largest_size(path: tuple[str, ...]) -> int | None:
    """Return the largest size of a value below `device`; None if it has no bound."""
    match path:
        case ("device", "driver"):
            return sizes.DOMAIN_CHARACTERS
        case ("device", "allowMultipleAllocations"):
            return 1
        case ("device", "attributes" | "capacity", *inner):
            return _largest_inner_size(path[1], inner)
        case _:
            return None


def _largest_inner_size(field: str, path: list[str]) -> int | None:
    """Return the largest size in a map of domains, which are maps of identifiers."""
    match path:
        case [] | ["@values"]:
            return sizes.ATTRIBUTES_AND_CAPACITIES
        case ["@keys"]:
            return sizes.DOMAIN_CHARACTERS
        case ["@values", "@keys"]:
            return sizes.IDENTIFIER_CHARACTERS
        case ["@values", _] if field == "attributes":
            return sizes.ATTRIBUTE_CHARACTERS
        case _:
            return None


def device_values(driver: str, device: Device) -> Mapping[str, Any]:
    """Return the variable `device` as expressions see it."""
    from kedge.machinery.cel.devices import DomainMap
    from kedge.machinery.cel.libraries.quantities import quantity_of

    attributes = DomainMap()
    for name, attribute in device.attributes.items():
        domain, identifier = split_name(name, driver)
        attributes.domain(domain)[identifier] = _selected_value(attribute)
    capacity = DomainMap()
    for name, amount in device.capacity.items():
        domain, identifier = split_name(name, driver)
        capacity.domain(domain)[identifier] = quantity_of(str(amount.value))
    return {
        "device": {
            "driver": driver,
            "allowMultipleAllocations": bool(device.allowMultipleAllocations),
            "attributes": attributes,
            "capacity": capacity,
        }
    }


def _selected_value(attribute: DeviceAttribute) -> Any:
    """Return the value as expressions see it: versions can be compared."""
    if attribute.version is not None:
        from kedge.machinery.cel.libraries.versions import version_of

        return version_of(attribute.version)
    return attribute_value(attribute)


def attribute_value(attribute: DeviceAttribute) -> int | bool | str | None:
    """Return the one value that is set; None if there is none."""
    values = (attribute.int_, attribute.bool_, attribute.string, attribute.version)
    return next((value for value in values if value is not None), None)


def split_name(name: str, driver: str) -> tuple[str, str]:
    """Return domain and identifier; the driver is the domain of a name without one."""
    domain, slash, identifier = name.partition("/")
    return (domain, identifier) if slash else (driver, name)
