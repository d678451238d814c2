"""Matches tolerations of pods against taints of nodes."""

from collections.abc import Iterable, Sequence

from kedge.api.core_v1.node_types import Taint
from kedge.api.core_v1.pod.affinity import Toleration

UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""The taint of an unschedulable node."""


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether one toleration covers a taint; an empty key or effect covers all of them."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    # Lt and Gt belong to a feature that is off, so they cover nothing.
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def tolerated(tolerations: Sequence[Toleration], taint: Taint) -> bool:
    """Whether any of the tolerations covers a taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


def untolerated(tolerations: Sequence[Toleration], taints: Iterable[Taint]) -> Taint | None:
    """The first taint that no toleration covers."""
    return next((taint for taint in taints if not tolerated(tolerations, taint)), None)
