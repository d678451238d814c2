"""How far the growth of a volume has come, as the status of its claim records it. Pure."""

from collections.abc import Iterable
from typing import Any, Final

from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim
from kedge.api.storage_v1.local_volumes import LOCAL_DRIVER
from kedge.node.storage.volume_driver import DriverError

PENDING: Final = "NodeResizePending"
IN_PROGRESS: Final = "NodeResizeInProgress"
INFEASIBLE: Final = "NodeResizeInfeasible"
RESIZE_ERROR: Final = "NodeResizeError"
_RESIZE_CONDITIONS: Final = ("Resizing", "FileSystemResizePending", RESIZE_ERROR)
_FIELDS: Final = (
    "type",
    "status",
    "reason",
    "message",
    "lastTransitionTime",
)


def may_grow(claim: PersistentVolumeClaim, driver: str) -> bool:
    """Return whether it is the node's turn.

    A resizer takes back a growth that is infeasible. Of a local volume nothing has grown before its
    node succeeds, so the node tries again: space may have become free.
    """
    state = claim.status.allocatedResourceStatuses.get("storage", "")
    if driver == LOCAL_DRIVER:
        return state in ("", PENDING, IN_PROGRESS, INFEASIBLE)
    return state in (PENDING, IN_PROGRESS)


def begun(claim: PersistentVolumeClaim) -> dict[str, Any]:
    """Return the patch before the driver is called. It fails if the claim has changed meanwhile:
    from here on a controller leaves the size alone."""
    return {
        "metadata": {"resourceVersion": claim.metadata.resourceVersion},
        "status": _state(IN_PROGRESS),
    }


def failed(claim: PersistentVolumeClaim, error: DriverError, size: int, now: str) -> dict[str, Any]:
    """Return the patch after a failure to grow to `size` bytes. A person who has lowered the
    request since gets the growth back even if the driver names no reason against it."""
    requested = claim.spec.resources.requests.get("storage")
    is_lowered = requested is not None and requested.value() != size
    is_infeasible = error.is_infeasible or (error.is_final and is_lowered)
    status = _state(INFEASIBLE if is_infeasible else PENDING)
    if is_infeasible or error.is_final:
        condition = {
            "type": RESIZE_ERROR,
            "status": "True",
            "message": f"failed to expand pvc with {error}",
            "lastTransitionTime": now,
        }
        status["conditions"] = [*_conditions(claim, (RESIZE_ERROR,)), condition]
    return {"status": status}


def finished(claim: PersistentVolumeClaim, capacity: str) -> dict[str, Any]:
    """Return the patch after the growth."""
    return {
        "status": {
            "capacity": {"storage": capacity},
            "allocatedResourceStatuses": None,
            "conditions": _conditions(claim, _RESIZE_CONDITIONS) or None,
        }
    }


def _state(state: str) -> dict[str, Any]:
    return {"allocatedResourceStatuses": {"storage": state}}


def _conditions(claim: PersistentVolumeClaim, without: Iterable[str]) -> list[dict[str, str]]:
    return [
        {name: value for name in _FIELDS if (value := getattr(each, name))}
        for each in claim.status.conditions
        if each.type not in without
    ]
