"""DeviceClass: a kind of device that claims ask for by name."""

from collections.abc import Iterator, Sequence

from msgspec import field

from kedge.api.core_v1 import resource_names
from kedge.api.core_v1.nesting import within
from kedge.api.model import Model, Object
from kedge.api.presentation import Presentation, age_column, name_column
from kedge.api.resource import Resource
from kedge.api.resource_v1 import sizes
from kedge.api.resource_v1.device_claim_validation import validate_configuration
from kedge.api.resource_v1.device_request import DeviceSelector, OpaqueDeviceConfiguration
from kedge.api.resource_v1.device_selector import validate_selector
from kedge.api.resource_v1.name_validation import validate_items
from kedge.api.resource_v1.resource_claim import GROUP
from kedge.api.strategy import Strategy
from kedge.machinery.errors import FieldError


class DeviceClassConfiguration(Model):
    """Configuration of every device that is allocated through the class."""

    opaque: OpaqueDeviceConfiguration | None = None
    """Parameters for a driver."""


class DeviceClassSpec(Model):
    """The devices of a class, and their configuration."""

    selectors: Sequence[DeviceSelector] = ()
    """Conditions that each device must fulfil."""
    config: Sequence[DeviceClassConfiguration] = ()
    """Configuration of the devices."""
    extendedResourceName: str | None = None
    """The extended resource by which pods get devices of the class without a claim."""


class DeviceClass(Object):
    """A kind of device that claims ask for by name."""

    __required__ = ("spec",)

    spec: DeviceClassSpec = field(default_factory=DeviceClassSpec)
    """The devices of the class, and their configuration."""


def validate(obj: DeviceClass) -> Iterator[FieldError]:
    return within("spec", _spec(obj.spec))


def _spec(spec: DeviceClassSpec) -> Iterator[FieldError]:
    yield from validate_items("selectors", spec.selectors, sizes.SELECTORS, validate_selector)
    yield from validate_items(
        "config",
        spec.config,
        sizes.CONFIGURATIONS,
        lambda each: validate_configuration(each.opaque),
    )
    name = spec.extendedResourceName
    if name is not None and not resource_names.is_extended(name):
        why = "must be a valid extended resource name"
        yield FieldError.invalid("extendedResourceName", name, why)


RESOURCE: Resource[DeviceClass] = Resource(
    type=DeviceClass,
    group=GROUP,
    plural="deviceclasses",
    namespaced=False,
    strategy=Strategy(validate=validate, returns_deleted_object=True),
    presentation=Presentation(columns=[name_column(), age_column()]),
)
