"""The smallest patch that changes the status of a pod in the API to a new one."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.api.core_v1.pod.status import PodStatus
from kedge.node.pod.status.conditions import OWN

_FOREIGN: Final = ("resourceClaimStatuses", "extendedResourceClaimStatus", "nominatedNodeName")
"""Fields that other components own."""
_ADDRESSES: Final = ("podIPs", "hostIPs")
_MAPS: Final = ("resources", "allocatedResources")
MANY_CONTAINERS: Final = 50
"""The status of a pod with so many containers is processed in a thread: it takes a tenth of a
millisecond for each container, and a pod may have thousands."""

Result = TypeVar("Result")


async def beside_loop(pod: Pod, function: Callable[..., Result], *arguments: object) -> Result:
    """Return the function's result, computed in a thread if the pod has many containers."""
    if len(pod.spec.containers) + len(pod.spec.initContainers) < MANY_CONTAINERS:
        return function(*arguments)
    return await asyncio.to_thread(function, *arguments)


def status_patch(pod: Pod, status: PodStatus) -> dict[str, Any] | None:
    """Return a strategic merge patch from the status of `pod` to `status`; None if they are equal.
    The uid in it makes the API server refuse the patch for another pod of the same name."""
    old, new = document(pod, pod.status), document(pod, status)
    changes: dict[str, Any] = {}
    for name in old.keys() | new.keys():
        if name in _FOREIGN or old.get(name) == new.get(name):
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
    """Return a status as a document."""
    whole = RESOURCE.to_document(msgspec.structs.replace(pod, status=status))
    found: dict[str, Any] = whole.get("status", {})
    return found


def _change(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in _ADDRESSES:
        # These lists would be merged by their key; the agent owns all of their items.
        return [{"$patch": "replace"}, *value]
    if name in _MAPS:
        return {"$patch": "replace", **value}
    return value


def _conditions(
    old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Return the changed and the removed conditions of the agent, without those of others."""
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
    """Return a condition with null for every field that it has lost."""
    return {**{name: None for name in before if name not in condition}, **condition}
