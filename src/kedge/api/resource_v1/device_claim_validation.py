"""Rules for the requests, constraints and configuration of claims."""

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

import msgspec

from kedge.api import rules
from kedge.api.core_v1.nesting import within
from kedge.api.core_v1.volume.validation import validate_driver_name
from kedge.api.resource_v1 import sizes
from kedge.api.resource_v1.device_request import (
    ALL,
    ALLOCATION_MODES,
    EQUAL,
    EXACT_COUNT,
    EXISTS,
    TAINT_EFFECTS,
    DeviceClaim,
    DeviceClaimConfiguration,
    DeviceConstraint,
    DeviceRequest,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    OpaqueDeviceConfiguration,
)
from kedge.api.resource_v1.device_selector import validate_selector
from kedge.api.resource_v1.name_validation import (
    validate_class_name,
    validate_full_attribute_name,
    validate_items,
    validate_label,
    validate_set,
)
from kedge.machinery import names
from kedge.machinery.errors import FieldError

RequestNames = Mapping[str, Set[str]]
"""The alternatives of each request."""

_NO_REQUEST = (
    "must be the name of a request in the claim or the name of a request and a subrequest "
    "separated by '/'"
)


def request_names(claim: DeviceClaim) -> RequestNames:
    return {
        request.name: {each.name for each in request.firstAvailable} for request in claim.requests
    }


def validate_device_claim(claim: DeviceClaim) -> Iterator[FieldError]:
    """Everything wrong with what a claim asks for."""
    known = request_names(claim)
    yield from validate_set(
        "requests", claim.requests, sizes.REQUESTS, _request, lambda each: each.name
    )
    yield from validate_items(
        "constraints", claim.constraints, sizes.CONSTRAINTS, lambda each: _constraint(each, known)
    )
    yield from validate_items(
        "config", claim.config, sizes.CONFIGURATIONS, lambda each: _configuration(each, known)
    )


def _request(request: DeviceRequest) -> Iterator[FieldError]:
    yield from validate_label("name", request.name)
    if request.firstAvailable and request.exactly is not None:
        why = (
            "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"
        )
        yield FieldError.invalid("", None, why)
    elif request.firstAvailable:
        yield from validate_set(
            "firstAvailable",
            request.firstAvailable,
            sizes.ALTERNATIVES,
            _alternative,
            lambda each: each.name,
        )
    elif request.exactly is not None:
        yield from within("exactly", _wish(request.exactly))
    else:
        yield FieldError.required("", "exactly one of `exactly` or `firstAvailable` is required")


def _alternative(request: DeviceSubRequest) -> Iterator[FieldError]:
    yield from validate_label("name", request.name)
    yield from _wish(request)


def _wish(request: ExactDeviceRequest | DeviceSubRequest) -> Iterator[FieldError]:
    yield from validate_class_name("deviceClassName", request.deviceClassName)
    yield from validate_items("selectors", request.selectors, sizes.SELECTORS, validate_selector)
    yield from _mode(request.allocationMode, request.count)
    for i, toleration in enumerate(request.tolerations):
        yield from within(f"tolerations[{i}]", _toleration(toleration))


def _mode(mode: str, count: int) -> Iterator[FieldError]:
    if mode == ALL:
        if count:
            why = f"must not be specified when allocationMode is '{ALL}'"
            yield FieldError.invalid("count", count, why)
    elif mode == EXACT_COUNT:
        if count <= 0:
            yield FieldError.invalid("count", count, "must be greater than zero")
    else:
        yield FieldError.not_supported("allocationMode", mode, ALLOCATION_MODES)


def _toleration(toleration: DeviceToleration) -> Iterator[FieldError]:
    if toleration.key:
        yield from rules.problems("key", toleration.key, names.qualified_name(toleration.key))
    if toleration.operator == EXISTS:
        if toleration.value:
            why = "must be empty for operator `Exists`"
            yield FieldError.invalid("value", toleration.value, why)
    elif toleration.operator == EQUAL:
        yield from rules.problems("value", toleration.value, names.label_value(toleration.value))
    else:
        yield from rules.one_of("operator", toleration.operator, (EQUAL, EXISTS))
    yield from rules.none_or_one_of("effect", toleration.effect, TAINT_EFFECTS)


def _constraint(constraint: DeviceConstraint, known: RequestNames) -> Iterator[FieldError]:
    yield from validate_request_refs(constraint.requests, known)
    if constraint.matchAttribute is not None:
        yield from validate_full_attribute_name("matchAttribute", constraint.matchAttribute)
    elif constraint.distinctAttribute is not None:
        yield from validate_full_attribute_name("distinctAttribute", constraint.distinctAttribute)
    else:
        # Upstream's words, although nothing is set.
        why = (
            'exactly one of "matchAttribute" or "distinctAttribute" is required, '
            "but multiple fields are set"
        )
        yield FieldError.required("", why)


def _configuration(config: DeviceClaimConfiguration, known: RequestNames) -> Iterator[FieldError]:
    yield from validate_request_refs(config.requests, known)
    yield from validate_configuration(config.opaque)


def validate_configuration(opaque: OpaqueDeviceConfiguration | None) -> Iterator[FieldError]:
    if opaque is None:
        yield FieldError.required("opaque")
        return
    yield from validate_driver_name("opaque.driver", opaque.driver)
    yield from validate_raw("opaque.parameters", opaque.parameters, sizes.PARAMETER_BYTES)


def validate_raw(path: str, value: Any, limit: int) -> Iterator[FieldError]:
    """A field that holds any object."""
    if value is None:
        yield FieldError.required(path)
    elif len(msgspec.json.encode(value)) > limit:
        yield FieldError.too_long(path, limit)
    elif not isinstance(value, dict):
        yield FieldError.invalid(path, "<value omitted>", "must be a valid JSON object")


def validate_request_refs(refs: Sequence[str], known: RequestNames) -> Iterator[FieldError]:
    """The names of requests, or of requests and alternatives."""
    yield from validate_set(
        "requests", refs, sizes.REQUESTS, lambda each: validate_request_ref("", each, known), str
    )


def validate_request_ref(path: str, name: str, known: RequestNames) -> Iterator[FieldError]:
    parts = name.split("/")
    if len(parts) > 2:
        yield FieldError.invalid(path, name, _NO_REQUEST)
        return
    for part in parts:
        yield from validate_label(path, part)
    alternatives = known.get(parts[0])
    if alternatives is None or (len(parts) == 2 and parts[1] not in alternatives):
        yield FieldError.invalid(path, name, _NO_REQUEST)
