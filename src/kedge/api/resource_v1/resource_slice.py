"""ResourceSlice: devices that a driver publishes."""

from collections.abc import Iterator

from msgspec import field
from msgspec.structs import replace

from kedge.api.core_v1.nesting import within
from kedge.api.model import Object
from kedge.api.presentation import Column, Presentation, age_column, name_column
from kedge.api.resource import Resource
from kedge.api.resource_v1.resource_claim import GROUP
from kedge.api.resource_v1.resource_slice_types import Device, DeviceAttribute, ResourceSliceSpec
from kedge.api.resource_v1.resource_slice_validation import validate_slice, validate_slice_update
from kedge.api.strategy import Strategy
from kedge.machinery.errors import FieldError


class ResourceSlice(Object):
    """Devices of one pool that a driver publishes."""

    __required__ = ("spec",)

    spec: ResourceSliceSpec = field(default_factory=ResourceSliceSpec)
    """The pool, the nodes that reach it, and the devices."""


def default(obj: ResourceSlice) -> ResourceSlice:
    """Drop what Kubernetes 1.36 has behind disabled gates: lists of values, resource mappings."""
    devices = [_without_gated_fields(each) for each in obj.spec.devices] or ()
    return replace(obj, spec=replace(obj.spec, devices=devices))


def _without_gated_fields(device: Device) -> Device:
    attributes = {name: _single(each) for name, each in device.attributes.items()}
    return replace(device, attributes=attributes, nodeAllocatableResourceMappings={})


def _single(attribute: DeviceAttribute) -> DeviceAttribute:
    if not (attribute.ints or attribute.bools or attribute.strings or attribute.versions):
        return attribute
    return replace(attribute, ints=(), bools=(), strings=(), versions=())


def validate(obj: ResourceSlice) -> Iterator[FieldError]:
    return within("spec", validate_slice(obj.spec))


def validate_update(new: ResourceSlice, old: ResourceSlice) -> Iterator[FieldError]:
    return within("spec", validate_slice_update(new.spec, old.spec))


def warnings(obj: ResourceSlice) -> Iterator[str]:
    driver = obj.spec.driver
    if driver != driver.lower():
        yield (
            "spec.driver: driver names should be lowercase; "
            f'"{driver}" contains uppercase characters'
        )


RESOURCE: Resource[ResourceSlice] = Resource(
    type=ResourceSlice,
    group=GROUP,
    plural="resourceslices",
    namespaced=False,
    strategy=Strategy(
        returns_deleted_object=True,
        default=default,
        validate=validate,
        validate_update=validate_update,
        warnings=warnings,
    ),
    presentation=Presentation(
        columns=[
            name_column(),
            Column(
                name="Node",
                cell=lambda obj: obj.spec.nodeName or "",
                description="The only node that reaches the devices.",
            ),
            Column(
                name="Driver",
                cell=lambda obj: obj.spec.driver,
                description="The driver that publishes the slice.",
            ),
            Column(
                name="Pool",
                cell=lambda obj: obj.spec.pool.name,
                description="The pool that the slice is a part of.",
            ),
            age_column(),
        ],
        fields={
            "spec.nodeName": lambda obj: obj.spec.nodeName or "",
            "spec.driver": lambda obj: obj.spec.driver,
        },
    ),
)
