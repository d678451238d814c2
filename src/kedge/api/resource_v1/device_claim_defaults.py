"""Defaults of the requests of claims and templates."""

from typing import TypeVar

from msgspec.structs import replace

from kedge.api.resource_v1.device_request import (
    EQUAL,
    EXACT_COUNT,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaimSpec,
)

R = TypeVar("R", ExactDeviceRequest, DeviceSubRequest)


def with_request_defaults(spec: ResourceClaimSpec) -> ResourceClaimSpec:
    """Return the spec with modes, counts and operators of tolerations filled in."""
    requests = [_request(each) for each in spec.devices.requests] or ()
    return replace(spec, devices=replace(spec.devices, requests=requests))


def _request(request: DeviceRequest) -> DeviceRequest:
    exactly = _counted(request.exactly) if request.exactly is not None else None
    alternatives = [_counted(each) for each in request.firstAvailable] or ()
    return replace(request, exactly=exactly, firstAvailable=alternatives)


def _counted(request: R) -> R:
    mode = request.allocationMode or EXACT_COUNT
    count = request.count or 1 if mode == EXACT_COUNT else request.count
    tolerations = [replace(each, operator=each.operator or EQUAL) for each in request.tolerations]
    return replace(request, allocationMode=mode, count=count, tolerations=tolerations or ())
