"""Selectors of devices: what they may cost, by the estimates of Kubernetes' own tests."""

import pytest

from kedge.api.resource_v1.device_request import CELDeviceSelector, DeviceSelector
from kedge.api.resource_v1.device_selector import estimated_cost, validate_selector
from kedge.machinery.errors import FieldError

ATTRIBUTES = 'device.attributes["dra.example.com"]'
CAPACITY = 'device.capacity["dra.example.com"]'
TEN = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
COMPLEX = "int('1'.find('[0-9]*')) < 100"
for _name in ("z5", "z4", "z3", "z2", "z", "y", "x"):
    COMPLEX = f"{TEN}.all({_name}, {COMPLEX})"


@pytest.mark.parametrize(
    ("expression", "cost"),
    [
        ('device.attributes["no-such-domain"].noSuchAttr.isGreaterThan(quantity("0"))', 6),
        ('"no-such-domain" in device.attributes', 3),
        ('device.driver == ""', 2),
        ('device.driver == "dra.example.com"', 4),
        ("device.allowMultipleAllocations == true", 3),
        (f"{ATTRIBUTES}.name", 4),
        (f'{ATTRIBUTES}["name"]', 4),
        (f"cel.bind(dra, {ATTRIBUTES}, dra.name)", 15),
        (f"{ATTRIBUTES}.name > 0", 5),
        (f'{ATTRIBUTES}.name == "fish"', 5),
        (f'{ATTRIBUTES}.name.isGreaterThan(semver("0.0.1"))', 6),
        (f'{CAPACITY}.name.isGreaterThan(quantity("1Ki"))', 6),
        (f'"name" in {CAPACITY} && {CAPACITY}.name.isGreaterThan(quantity("1Ki"))', 10),
        (f'!("name" in {CAPACITY}) || {CAPACITY}.name.isGreaterThan(quantity("1Ki"))', 11),
        (f"{ATTRIBUTES}.a && {ATTRIBUTES}.b && {ATTRIBUTES}.c", 12),
        ('device.attributes.exists_one(x, x == "dra.example.com")', 164),
        (f'{ATTRIBUTES}.exists_one(x, x == "services")', 133),
        (f'{ATTRIBUTES}.services.split("example").size() >= 2', 19),
        (f'{ATTRIBUTES}.services.matches("[^a]?sym")', 18),
        ('device.capacity.exists_one(x, x == "dra.example.com")', 164),
        (f'{CAPACITY}.exists_one(x, x == "memory")', 133),
        (COMPLEX, 85_555_551),
    ],
)
def test_costs_are_estimated_as_kubernetes_estimates_them(expression: str, cost: int) -> None:
    assert estimated_cost(expression) == cost


def selector(expression: str) -> DeviceSelector:
    return DeviceSelector(cel=CELDeviceSelector(expression=expression))


def test_a_selector_that_may_cost_too_much_is_refused() -> None:
    assert list(validate_selector(selector(COMPLEX))) == [
        FieldError.forbidden("cel.expression", "too complex, exceeds cost limit")
    ]
    assert list(validate_selector(selector("true"))) == []


def test_a_selector_is_true_or_false() -> None:
    why = "must evaluate to bool or the unknown type, not int"
    assert list(validate_selector(selector("1"))) == [
        FieldError.invalid("cel.expression", "1", why)
    ]
