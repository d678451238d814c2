"""Status patch: the least that has to be sent so that the API's status of a pod becomes ours."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.api.core_v1.pod.status import PodStatus
from kedge.node.conditions import OWN

_KEPT: Final = ("resourceClaimStatuses", "extendedResourceClaimStatus", "nominatedNodeName")
"""Fields that belong to others."""
_ADDRESSES: Final = ("podIPs", "hostIPs")
_MAPS: Final = ("resources", "allocatedResources")


def status_patch(pod: Pod, status: PodStatus) -> dict[str, Any] | None:
    """A strategic merge patch from the status that `pod` has in the API; None if there is nothing
    to change. It holds for this very pod only, not for another of its name."""
    old, new = document(pod, pod.status), document(pod, status)
    changes: dict[str, Any] = {}
    for name in old.keys() | new.keys():
        if name in _KEPT or old.get(name) == new.get(name):
            continue
        if name == "conditions":
            changed = _conditions(old.get(name, []), new.get(name, []))
            if changed:
                changes[name] = changed
        else:
            changes[name] = _change(name, new.get(name))
    if not changes:
        return None
    return {"metadata": {"uid": pod.metadata.uid}, "status": changes}


def document(pod: Pod, status: PodStatus) -> dict[str, Any]:
    """A status as it stands on the wire."""
    whole = RESOURCE.to_document(msgspec.structs.replace(pod, status=status))
    found: dict[str, Any] = whole.get("status", {})
    return found


def _change(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in _ADDRESSES:
        # Lists that would be merged by their key: ours is the whole truth.
        return [{"$patch": "replace"}, *value]
    if name in _MAPS:
        return {"$patch": "replace", **value}
    return value


def _conditions(
    old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Our conditions that differ, and those of ours that are no more; others' are left alone."""
    before = {condition["type"]: condition for condition in old}
    ours = {condition["type"]: condition for condition in new if condition["type"] in OWN}
    changed = [
        _nulled(condition, before.get(kind, {}))
        for kind, condition in ours.items()
        if before.get(kind) != condition
    ]
    gone = [
        {"$patch": "delete", "type": kind} for kind in before if kind in OWN and kind not in ours
    ]
    return [*changed, *gone]


def _nulled(condition: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """A condition that also takes away what it no longer says."""
    return {**{name: None for name in before if name not in condition}, **condition}
