"""Texts for people who read a failed test: conditions, events and the last lines of logs."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kedge.cluster.conditions import conditions, phase

LOG_LINES: Final = 10
"""Lines of each container's log in a report."""
MOST_PODS: Final = 20
MOST_EVENTS: Final = 30
LONGEST_LINE: Final = 400

KubeObject = Mapping[str, Any]


class LogTail(NamedTuple):
    """The last lines of the log of a container."""

    pod: str
    container: str
    text: str


class Observation(NamedTuple):
    """The objects that a report describes."""

    objects: Sequence[KubeObject] = ()
    pods: Sequence[KubeObject] = ()
    events: Sequence[KubeObject] = ()
    logs: Sequence[LogTail] = ()


def text(seen: Observation) -> str:
    """Return the report; empty if there is nothing to report."""
    parts = [
        *(_object(each) for each in seen.objects),
        *(_pod(each) for each in seen.pods[:MOST_PODS]),
        _more(len(seen.pods) - MOST_PODS, "pods"),
        _events(seen.events),
        *(_log(each) for each in seen.logs),
    ]
    return "\n".join(filter(None, parts))


def _object(obj: KubeObject) -> str:
    lines = [f"{obj.get('kind', 'object')} {obj['metadata']['name']}:"]
    if word := phase(obj):
        lines.append(f"  phase {word}")
    lines += [_condition(each) for each in conditions(obj)]
    status = obj.get("status") or {}
    counts = [f"{key} {value}" for key, value in status.items() if isinstance(value, int)]
    if counts:
        lines.append(f"  {', '.join(counts)}")
    return "\n".join(lines if len(lines) > 1 else [*lines, "  no status"])


def _condition(condition: KubeObject) -> str:
    why = ": ".join(str(condition[key]) for key in ("reason", "message") if condition.get(key))
    return _cut(
        f"  {condition.get('type')}={condition.get('status')}" + (f"  {why}" if why else "")
    )


def _pod(pod: KubeObject) -> str:
    status = pod.get("status") or {}
    node = (pod.get("spec") or {}).get("nodeName") or "no node"
    lines = [f"Pod {pod['metadata']['name']}: {phase(pod) or 'Unknown'} on {node}"]
    lines += [_condition(each) for each in conditions(pod) if each.get("status") != "True"]
    for kind in ("initContainerStatuses", "containerStatuses"):
        lines += [_container(each) for each in status.get(kind) or ()]
    return "\n".join(lines)


def _container(status: KubeObject) -> str:
    state, details = next(iter((status.get("state") or {"waiting": {}}).items()))
    facts = [f"{key} {details[key]}" for key in ("reason", "exitCode", "message") if key in details]
    restarts = f", {status['restartCount']} restarts" if status.get("restartCount") else ""
    return _cut(f"  container {status.get('name')}: {' '.join([state, *facts])}{restarts}")


def _events(events: Sequence[KubeObject]) -> str:
    shown = sorted(events, key=time_of)[-MOST_EVENTS:]
    lines = [
        _cut(
            f"  {each.get('type')}  {each.get('reason')}  {_about(each)}  {each.get('message', '')}"
        )
        for each in shown
    ]
    return "\n".join(["Events:", *lines]) if lines else ""


def _about(event: KubeObject) -> str:
    about = event.get("involvedObject") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


def time_of(event: KubeObject) -> str:
    """Return the time of an event, as a text that sorts."""
    times = (event.get("lastTimestamp"), event.get("eventTime"), event.get("firstTimestamp"))
    return str(next((each for each in times if each), event["metadata"].get("creationTimestamp")))


def _log(log: LogTail) -> str:
    lines = log.text.splitlines()[-LOG_LINES:]
    if not lines:
        return ""
    head = f"Log of {log.pod}, container {log.container}:"
    return "\n".join([head, *(_cut(f"  {line}") for line in lines)])


def _more(count: int, what: str) -> str:
    return f"... and {count} more {what}" if count > 0 else ""


def _cut(line: str) -> str:
    flat = line.replace("\n", " ")
    return flat if len(flat) <= LONGEST_LINE else f"{flat[:LONGEST_LINE]}..."
