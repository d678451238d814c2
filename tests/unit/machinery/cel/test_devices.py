"""Device selectors: the expressions of Kubernetes' documentation."""

import msgspec
import pytest

from kedge.api.resource_v1.device_selector import compiled, device_values
from kedge.api.resource_v1.resource_slice_types import Device
from kedge.machinery.cel import CelError
from kedge.machinery.quantity import Quantity

DEVICE = msgspec.convert(
    {
        "name": "d",
        "attributes": {
            "model": {"string": "x"},
            "other.example.com/version": {"version": "1.2.3"},
            "ready": {"bool": True},
        },
        "capacity": {"memory": {"value": Quantity.parse("10Gi")}},
    },
    Device,
)


def holds(expression: str) -> bool:
    return compiled(expression).holds(device_values("gpu.example.com", DEVICE))


@pytest.mark.parametrize(
    "expression",
    [
        "device.driver == 'gpu.example.com'",
        "device.attributes['gpu.example.com'].model == 'x'",
        "device.attributes['gpu.example.com'].ready",
        "!has(device.attributes['unknown'].model)",
        "device.capacity['gpu.example.com'].memory.compareTo(quantity('5Gi')) >= 0",
        "device.attributes['other.example.com'].version.isGreaterThan(semver('1.0.0'))",
        "cel.bind(gpu, device.attributes['gpu.example.com'], gpu.model == 'x' && gpu.ready)",
    ],
)
def test_selectors_of_the_documentation_hold(expression: str) -> None:
    assert holds(expression)


def test_an_attribute_that_a_device_does_not_have_is_an_error() -> None:
    with pytest.raises(CelError, match="no such key: model"):
        holds("device.attributes['unknown'].model == 'x'")
