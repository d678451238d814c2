"""Taints by node condition, and the time that a pod tolerates them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kedge.api.core_v1.node_types import Node, NodeCondition, Taint
from kedge.api.core_v1.pod.affinity import Toleration
from kedge.api.core_v1.pod.tolerations import tolerates

NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"

_KEYS: Final[Mapping[tuple[str, str], str]] = {
    ("Ready", "False"): NOT_READY,
    ("Ready", "Unknown"): UNREACHABLE,
    ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
}
"""By condition and its status: the taint that goes with it."""
_OURS: Final = frozenset({*_KEYS.values(), UNSCHEDULABLE})


def tolerated_seconds(tolerations: Sequence[Toleration], taints: Iterable[Taint]) -> float | None:
    """Return the seconds that a pod tolerates taints: 0 if it does not, None without a limit."""
    shortest: float | None = None
    for taint in taints:
        used = next((each for each in tolerations if tolerates(each, taint)), None)
        if used is None:
            return 0.0
        if used.tolerationSeconds is not None:
            seconds = float(max(used.tolerationSeconds, 0))
            shortest = seconds if shortest is None else min(shortest, seconds)
    return shortest


def no_execute_taints(node: Node | None) -> list[Taint]:
    """The taints of a node that drive pods away."""
    if node is None:
        return []
    return [taint for taint in node.spec.taints if taint.effect == NO_EXECUTE]


def readiness(node: Node) -> str:
    """True, False or Unknown; empty if the node has never said it."""
    found = condition(node, "Ready")
    return found.status if found else ""


def condition(node: Node, type_: str) -> NodeCondition | None:
    return next((each for each in node.status.conditions if each.type == type_), None)


def no_schedule_keys(node: Node) -> list[str]:
    """Return the keys of the NoSchedule taints that the state of a node requires."""
    keys = [
        _KEYS[each.type, each.status]
        for each in node.status.conditions
        if (each.type, each.status) in _KEYS
    ]
    return [*keys, UNSCHEDULABLE] if node.spec.unschedulable else keys


def required_eviction_key(node: Node) -> str:
    """Return the key of the NoExecute taint that the state of a node requires; empty if none."""
    status = readiness(node)
    return _KEYS["Ready", status] if status in ("False", "Unknown") else ""


def eviction_key(node: Node) -> str:
    """Return the key of the NoExecute taint that a node has because of its state; empty if none."""
    keys = {taint.key for taint in no_execute_taints(node)}
    return next((key for key in (UNREACHABLE, NOT_READY) if key in keys), "")


def updated_taints(node: Node, eviction: str, now: str) -> list[Taint]:
    """Return the taints that a node should have.

    These are the taints of others, those of its conditions, and the NoExecute taint `eviction`, if
    any. Taints that are already there stay as they are.
    """
    wanted = {(key, NO_SCHEDULE) for key in no_schedule_keys(node)}
    if eviction:
        wanted.add((eviction, NO_EXECUTE))
    kept = [taint for taint in node.spec.taints if not _ours(taint) or _name(taint) in wanted]
    missing = sorted(wanted - {_name(taint) for taint in kept})
    return [*kept, *(Taint(key=key, effect=effect, timeAdded=now) for key, effect in missing)]


def _name(taint: Taint) -> tuple[str, str]:
    return taint.key, taint.effect


def _ours(taint: Taint) -> bool:
    """Whether the node lifecycle controller manages the taint."""
    if taint.effect == NO_SCHEDULE:
        return taint.key in _OURS
    return taint.effect == NO_EXECUTE and taint.key in (NOT_READY, UNREACHABLE)
