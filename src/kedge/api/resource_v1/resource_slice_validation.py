"""Rules for slices: pools, devices, counters and taints."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from kedge.api import rules
from kedge.api.core_v1.nesting import within
from kedge.api.core_v1.pod.affinity import NodeSelector
from kedge.api.core_v1.pod.affinity_validation import validate_node_selector
from kedge.api.core_v1.volume.validation import validate_driver_name
from kedge.api.internal_forms import internal_form
from kedge.api.resource_v1 import sizes
from kedge.api.resource_v1.capacity_policy_validation import (
    validate_shared_capacity,
    validate_unshared_capacity,
)
from kedge.api.resource_v1.claim_status_validation import validate_binding_conditions
from kedge.api.resource_v1.device_request import TAINT_EFFECTS
from kedge.api.resource_v1.name_validation import (
    validate_attribute_name,
    validate_items,
    validate_label,
    validate_map,
    validate_pool_name,
    validate_set,
)
from kedge.api.resource_v1.resource_slice_types import (
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCounterConsumption,
    DeviceTaint,
    ResourcePool,
    ResourceSliceSpec,
)
from kedge.machinery import names
from kedge.machinery.errors import FieldError

_NUMBER: Final = r"(0|[1-9]\d*)"
_PRE_RELEASE: Final = r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD: Final = r"[0-9a-zA-Z-]+"
_is_version: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRE_RELEASE}(\.{_PRE_RELEASE})*)?"
    rf"(\+{_BUILD}(\.{_BUILD})*)?",
    re.ASCII,
).fullmatch

_NODES: Final = (
    "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
)
_DEVICE_NODES: Final = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when "
    "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
)
_UNSET_OR_TRUE: Final = "must be either unset or set to true"


def validate_slice(spec: ResourceSliceSpec) -> Iterator[FieldError]:
    """Everything wrong with a slice."""
    yield from validate_driver_name("driver", spec.driver)
    yield from within("pool", _pool(spec.pool))
    yield from _slice_nodes(spec)
    if spec.sharedCounters and spec.devices:
        yield FieldError.invalid("", "", "only one of `sharedCounters` or `devices` is allowed")
    advanced = any(device.taints or device.consumesCounters for device in spec.devices)
    yield from validate_set(
        "devices",
        spec.devices,
        sizes.DEVICES_WITH_COUNTERS_OR_TAINTS if advanced else sizes.DEVICES,
        lambda each: _device(each, per_device=bool(spec.perDeviceNodeSelection)),
        lambda each: each.name,
    )
    yield from validate_set(
        "sharedCounters",
        spec.sharedCounters,
        sizes.COUNTER_SETS,
        _counter_set,
        lambda each: each.name,
    )


def validate_slice_update(new: ResourceSliceSpec, old: ResourceSliceSpec) -> Iterator[FieldError]:
    yield from rules.unchanged("pool.name", new.pool.name, old.pool.name)
    yield from rules.unchanged("driver", new.driver, old.driver)
    yield from rules.unchanged("nodeName", new.nodeName, old.nodeName)


def _pool(pool: ResourcePool) -> Iterator[FieldError]:
    yield from validate_pool_name("name", pool.name)
    if pool.resourceSliceCount <= 0:
        why = "must be greater than zero"
        yield FieldError.invalid("resourceSliceCount", pool.resourceSliceCount, why)
    if pool.generation < 0:
        why = "must be greater than or equal to zero"
        yield FieldError.invalid("generation", pool.generation, why)


def _slice_nodes(spec: ResourceSliceSpec) -> Iterator[FieldError]:
    why_empty = "must be either unset or set to a non-empty string"
    yield from _node_choice(spec, why_empty=why_empty)
    if spec.nodeSelector is not None and len(spec.nodeSelector.nodeSelectorTerms) != 1:
        terms = internal_form(spec.nodeSelector.nodeSelectorTerms, "[core.NodeSelectorTerm")
        why = "must have exactly one node selector term"
        yield FieldError.invalid("nodeSelector.nodeSelectorTerms", terms, why)
    if spec.perDeviceNodeSelection is False:
        yield FieldError.invalid("perDeviceNodeSelection", False, _UNSET_OR_TRUE)
    chosen = _chosen(spec)
    if spec.perDeviceNodeSelection:
        chosen.append("`perDeviceNodeSelection`")
    if not chosen:
        yield FieldError.required("", _NODES)
    elif len(chosen) > 1:
        shown = f"{{{', '.join(chosen)}}}"
        yield FieldError.invalid("", shown, f"{_NODES}, but multiple fields are set")


def _chosen(item: ResourceSliceSpec | Device) -> list[str]:
    """Return the ways by which a slice or device names its nodes."""
    ways = {
        "`nodeName`": bool(item.nodeName),
        "`nodeSelector`": item.nodeSelector is not None,
        "`allNodes`": bool(item.allNodes),
    }
    return [way for way, is_chosen in ways.items() if is_chosen]


def _node_choice(item: ResourceSliceSpec | Device, *, why_empty: str) -> Iterator[FieldError]:
    if item.nodeName == "":
        yield FieldError.invalid("nodeName", "", why_empty)
    elif item.nodeName is not None:
        yield from rules.problems("nodeName", item.nodeName, names.dns_subdomain(item.nodeName))
    if item.nodeSelector is not None:
        yield from _nodes(item.nodeSelector)
    if item.allNodes is False:
        yield FieldError.invalid("allNodes", False, _UNSET_OR_TRUE)


def _nodes(selector: NodeSelector) -> Iterator[FieldError]:
    yield from within("nodeSelector", validate_node_selector(selector))


def _device(device: Device, *, per_device: bool) -> Iterator[FieldError]:
    yield from validate_label("name", device.name)
    yield from _device_sizes(device)
    yield from validate_map("attributes", device.attributes, validate_attribute_name, _attribute)
    is_shared = device.allowMultipleAllocations
    check = validate_shared_capacity if is_shared else validate_unshared_capacity
    yield from validate_map("capacity", device.capacity, validate_attribute_name, check)
    yield from validate_items("taints", device.taints, sizes.TAINTS, _taint)
    yield from validate_set(
        "consumesCounters",
        device.consumesCounters,
        sizes.CONSUMED_COUNTER_SETS,
        _consumption,
        lambda each: each.counterSet,
    )
    yield from _device_nodes(device, per_device=per_device)
    yield from validate_binding_conditions(
        device.bindingConditions, device.bindingFailureConditions
    )


def _device_sizes(device: Device) -> Iterator[FieldError]:
    properties = len(device.attributes) + len(device.capacity)
    if properties > sizes.ATTRIBUTES_AND_CAPACITIES:
        limit = sizes.ATTRIBUTES_AND_CAPACITIES
        why = f"the total number of attributes and capacities must not exceed {limit}"
        yield FieldError.invalid("", properties, why)
    if len(device.attributes) > sizes.ATTRIBUTE_VALUES:
        why = f"the total number of attribute values must not exceed {sizes.ATTRIBUTE_VALUES}"
        yield FieldError.invalid("", len(device.attributes), why)


def _device_nodes(device: Device, *, per_device: bool) -> Iterator[FieldError]:
    if per_device:
        yield from _node_choice(device, why_empty="must not be empty")
        chosen = _chosen(device)
        if not chosen:
            yield FieldError.required("", _DEVICE_NODES)
        elif len(chosen) > 1:
            yield FieldError.invalid("", f"{{{', '.join(chosen)}}}", _DEVICE_NODES)
    elif any(each is not None for each in (device.nodeName, device.nodeSelector, device.allNodes)):
        why = (
            "`nodeName`, `nodeSelector` and `allNodes` can only be set if "
            "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
        )
        yield FieldError.invalid("", None, why)


def _attribute(attribute: DeviceAttribute) -> Iterator[FieldError]:
    values = (attribute.int_, attribute.bool_, attribute.string, attribute.version)
    if attribute.string is not None:
        yield from _short("string", attribute.string)
    if attribute.version is not None:
        if not _is_version(attribute.version):
            why = "must be a string compatible with semver.org spec 2.0.0"
            yield FieldError.invalid("version", attribute.version, why)
        yield from _short("version", attribute.version)
    number = sum(value is not None for value in values)
    if number != 1:
        shown = _shown_attribute(attribute) if number else ""
        yield FieldError.invalid("", shown, "exactly one value must be specified")


def _shown_attribute(attribute: DeviceAttribute) -> Mapping[str, object]:
    return {
        "IntValue": attribute.int_,
        "BoolValue": attribute.bool_,
        "StringValue": attribute.string,
        "VersionValue": attribute.version,
        "IntValues": None,
        "BoolValues": None,
        "StringValues": None,
        "VersionValues": None,
    }


def _short(path: str, value: str) -> Iterator[FieldError]:
    if len(value.encode()) > sizes.ATTRIBUTE_CHARACTERS:
        yield FieldError.too_long(path, sizes.ATTRIBUTE_CHARACTERS)


def _taint(taint: DeviceTaint) -> Iterator[FieldError]:
    yield from rules.problems("key", taint.key, names.qualified_name(taint.key))
    if taint.value:
        yield from rules.problems("value", taint.value, names.label_value(taint.value))
    yield from rules.one_of("effect", taint.effect, TAINT_EFFECTS)


def _counter_set(counters: CounterSet) -> Iterator[FieldError]:
    yield from _counter_set_name("name", counters.name)
    yield from _counters(counters.counters)


def _consumption(consumption: DeviceCounterConsumption) -> Iterator[FieldError]:
    yield from _counter_set_name("counterSet", consumption.counterSet)
    yield from _counters(consumption.counters)


def _counter_set_name(path: str, name: str) -> Iterator[FieldError]:
    if not name:
        yield FieldError.required(path)
    else:
        yield from validate_label(path, name)


def _counters(counters: Mapping[str, Counter]) -> Iterator[FieldError]:
    if not counters:
        yield FieldError.required("counters")
    elif len(counters) > sizes.COUNTERS:
        yield FieldError.too_many("counters", len(counters), sizes.COUNTERS)
    else:
        for name in counters:
            yield from validate_label("counters", name)
