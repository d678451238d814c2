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


def patience(tolerations: Sequence[Toleration], taints: Iterable[Taint]) -> float | None:
    """For how many seconds a pod puts up with taints: 0 if it does not, None if for ever."""
    shortest: float | None = None
    for taint in taints:
        used = next((each for each in tolerations if tolerates(each, taint)), None)
        if used is None:
            return 0.0
        if used.tolerationSeconds is not None:
            seconds = float(max(used.tolerationSeconds, 0))
            shortest = seconds if shortest is None else min(shortest, seconds)
    return shortest


def evicting(node: Node | None) -> list[Taint]:
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


def deserved(node: Node) -> list[str]:
    """The keys of the taints that keep new pods away from a node in this state."""
    keys = [
        _KEYS[each.type, each.status]
        for each in node.status.conditions
        if (each.type, each.status) in _KEYS
    ]
    return [*keys, UNSCHEDULABLE] if node.spec.unschedulable else keys


def alarm(node: Node) -> str:
    """The key of the taint that is to drive pods away from a node in this state, if any."""
    status = readiness(node)
    return _KEYS["Ready", status] if status in ("False", "Unknown") else ""


def alarmed(node: Node) -> str:
    """The key of the taint that does drive pods away for the sake of the node's state, if any."""
    keys = {taint.key for taint in evicting(node)}
    return next((key for key in (UNREACHABLE, NOT_READY) if key in keys), "")


def retainted(node: Node, alarm: str, now: str) -> list[Taint]:
    """Return the taints that a node should have.

    These are the taints of others, those of its conditions, and the NoExecute taint `alarm`, if
    any. Taints that are already there stay as they are.
    """
    wanted = {(key, NO_SCHEDULE) for key in deserved(node)}
    if alarm:
        wanted.add((alarm, NO_EXECUTE))
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
