"""Decides whether an object is in the state that a test waits for."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kedge.cluster.errors import ClusterError

State = str | Callable[[Mapping[str, Any]], object]
"""`exists`, `deleted`, a phase such as `Running`, a condition such as `Ready` or `Ready=False`, or
a function of the object."""

EXISTS: Final = "exists"
DELETED: Final = "deleted"
PHASES: Final = frozenset(
    ("Pending", "Running", "Succeeded", "Bound", "Released", "Active", "Terminating", "Lost")
)
"""Words that are phases of an object. `Failed` is both: a condition of Jobs and a phase of pods."""
BOTH: Final = "Failed"


def is_reached(state: State, obj: Mapping[str, Any] | None) -> bool:
    """Return whether the object, or its absence, is in the state."""
    if state == DELETED:
        return obj is None
    if obj is None:
        return False
    if not isinstance(state, str):
        return bool(state(obj))
    if state == EXISTS:
        return True
    if state in PHASES:
        return phase(obj) == state
    return _is_condition(state, obj) or (state == BOTH and phase(obj) == BOTH)


def check(state: State) -> None:
    """Raise ClusterError if this is no state."""
    if not callable(state) and not (isinstance(state, str) and state.strip("=")):
        raise ClusterError(f"{state!r} is no state: give a condition, a phase, or a function")


def _is_condition(state: str, obj: Mapping[str, Any]) -> bool:
    type_, _, status = state.partition("=")
    if not _is_observed(obj):
        return False
    wanted = (status or "True").lower()
    return any(
        str(each.get("type")) == type_ and str(each.get("status")).lower() == wanted
        for each in conditions(obj)
    )


def _is_observed(obj: Mapping[str, Any]) -> bool:
    """Return whether the conditions are about the newest spec, as far as the status says."""
    observed = (obj.get("status") or {}).get("observedGeneration")
    generation = (obj.get("metadata") or {}).get("generation")
    return observed is None or generation is None or observed >= generation


def conditions(obj: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the conditions of an object."""
    found = (obj.get("status") or {}).get("conditions")
    return [each for each in found if isinstance(each, Mapping)] if found else []


def phase(obj: Mapping[str, Any]) -> str:
    """Return the phase of an object; empty if it has none."""
    return str((obj.get("status") or {}).get("phase") or "")
