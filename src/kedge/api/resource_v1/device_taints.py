"""Taints of devices, and the tolerations of claims."""

from collections.abc import Sequence

from kedge.api.resource_v1.device_request import (
    EQUAL,
    EXISTS,
    NO_EXECUTE,
    NO_SCHEDULE,
    DeviceToleration,
)
from kedge.api.resource_v1.resource_slice_types import Device, DeviceTaint

_PREVENTING = (NO_EXECUTE, NO_SCHEDULE)


def tolerates(tolerations: Sequence[DeviceToleration], device: Device) -> bool:
    """Whether no taint of a device prevents its allocation."""
    return all(
        any(tolerates_taint(each, taint) for each in tolerations)
        for taint in device.taints
        if taint.effect in _PREVENTING
    )


def tolerates_taint(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == EXISTS:
        return True
    return toleration.operator in ("", EQUAL) and toleration.value == taint.value


def tolerated_seconds(tolerations: Sequence[DeviceToleration], taint: DeviceTaint) -> float | None:
    """Return how long a NoExecute taint is tolerated; None if forever."""
    matching = [
        each for each in tolerations if each.effect == NO_EXECUTE and tolerates_taint(each, taint)
    ]
    if any(each.tolerationSeconds is None for each in matching):
        return None
    return max(0, min((each.tolerationSeconds or 0 for each in matching), default=0))
