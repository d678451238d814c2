"""ClaimState: a claim of a pod, with its volume, the nodes of that, and what it waits for."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from kedge.cli.descriptions.parts import Fields, last_seen, shown

NONE: Final = "<none>"
ANY_NODE: Final = "<any>"
_FAILURES: Final = ("FailedMount", "FailedMapVolume", "FailedAttachVolume")
_RESIZE_CONDITIONS: Final = ("NodeResizeError", "ControllerResizeError", "FileSystemResizePending")
_HOSTNAME: Final = "kubernetes.io/hostname"


class ClaimState(NamedTuple):
    """A claim as a pod sees it."""

    claim: str
    phase: str
    volume: str = NONE
    nodes: str = NONE
    waits_for: str = ""


def claim_names(pod: Fields) -> Iterator[tuple[str, str]]:
    """Yield volume and claim for each claim of a pod."""
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        if source := volume.get("persistentVolumeClaim"):
            yield volume["name"], source["claimName"]
        elif volume.get("ephemeral") is not None:
            yield volume["name"], f"{pod['metadata']['name']}-{volume['name']}"


def missing(name: str) -> ClaimState:
    """Return the state of a claim that does not exist."""
    return ClaimState(name, "Missing", waits_for="the claim does not exist")


def claim_state(
    claim: Fields,
    volume: Fields | None,
    events: Iterable[Fields],
    pod_events: Iterable[Fields] = (),
    pod_volume: str = "",
) -> ClaimState:
    """Return the state of a claim. `pod_volume` is its name in the pod that waits for it."""
    status, name = claim.get("status") or {}, (claim.get("spec") or {}).get("volumeName", "")
    phase = "Terminating" if claim["metadata"].get("deletionTimestamp") else status.get("phase", "")
    nodes = nodes_of(volume) if volume is not None else NONE
    if not name or status.get("phase") != "Bound":
        waits = _latest(events) or "a volume"
    else:
        failures = (each for each in pod_events if _is_about(each, name, pod_volume))
        waits = _latest(failures) or _resize(status)
    return ClaimState(claim["metadata"]["name"], phase, name or NONE, nodes, waits)


def claim_lines(state: ClaimState) -> Iterator[str]:
    """Yield the facts about a claim for the description of its pod."""
    yield f"Claim Status:\t{state.phase}"
    yield f"Volume:\t{state.volume}"
    yield f"Nodes:\t{state.nodes}"
    if state.waits_for:
        yield f"Waits For:\t{shown(state.waits_for)}"


def nodes_of(volume: Fields) -> str:
    """Return the nodes that a volume names, or <any>."""
    affinity = (volume.get("spec") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("required") or {}).get("nodeSelectorTerms") or ()
    rules = [rule for term in terms for rule in term.get("matchExpressions") or ()]
    named = [
        value
        for rule in rules
        if rule.get("key") == _HOSTNAME and rule.get("operator") == "In"
        for value in rule.get("values") or ()
    ]
    if named:
        return ",".join(named)
    return "; ".join(map(_rule, rules)) or ANY_NODE


def _rule(rule: Fields) -> str:
    values = ",".join(rule.get("values") or ())
    return f"{rule.get('key', '')} {rule.get('operator', '')} {values}".strip()


def _is_about(event: Fields, volume: str, pod_volume: str) -> bool:
    text = str(event.get("message", ""))
    names = (f'"{volume}"', f'"{pod_volume}"', f"[{pod_volume}]")
    return event.get("reason") in _FAILURES and any(name in text for name in names)


def _latest(events: Iterable[Fields]) -> str:
    found: Sequence[Fields] = sorted(events, key=last_seen)
    if not found:
        return ""
    return f"{found[-1].get('reason', '')}: {str(found[-1].get('message', '')).strip()}"


def _resize(status: Fields) -> str:
    """Return why the volume is smaller than the request; empty if it is not."""
    conditions: dict[str, Any] = {each["type"]: each for each in status.get("conditions") or ()}
    for kind in _RESIZE_CONDITIONS:
        if kind in conditions:
            return f"{kind}: {conditions[kind].get('message', '')}"
    return ""
