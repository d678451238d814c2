"""The parts of descriptions: lines whose cells end in tabs, aligned once all are there."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from kedge.cli.output import tabstops
from kedge.cli.output.tables import harmless
from kedge.machinery.durations import human_age, parse_time

Fields = Mapping[str, Any]

NONE: Final = "<none>"
LONGEST_ANNOTATION: Final = 140
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


class RelatedObjects(msgspec.Struct, frozen=True, kw_only=True):
    """The other objects that a description uses."""

    now: datetime
    events: Sequence[Fields] | None = None
    """Those about the object; None if they may not be read."""
    pods: Sequence[Fields] | None = None
    """Of a node: those that it runs. Of a claim: those of its namespace."""
    lease: Fields | None = None
    """Of a node: its sign of life."""
    claims: Mapping[str, Sequence[str]] = {}
    """Of a pod: lines about the claim of each volume."""
    volume: Fields | None = None
    """Of a claim: the volume that it is bound to."""
    wide: bool = False
    """Whether more columns are wanted than usual."""


def text(lines: Iterable[str], layout: tabstops.TabLayout = tabstops.DESCRIPTION) -> str:
    """The description, aligned."""
    return "\n".join(tabstops.align(map(harmless, lines), layout))


def fact(label: str, value: object) -> str:
    return f"{label}:\t{shown(value)}"


def shown(value: object) -> str:
    """A value as text; what a multi-line text has beyond its first line is marked as left out."""
    if isinstance(value, bool):
        return "true" if value else "false"
    first, *more = str(value).replace("\t", " ").split("\n")
    return f"{first}..." if any(more) else first


def indented(lines: Iterable[str], by: str = "  ") -> Iterator[str]:
    return (by + line for line in lines)


def several(title: str, values: Iterable[str]) -> Iterator[str]:
    """A fact of several values, one under the other."""
    first, *more = [*values] or [NONE]
    yield f"{title}:\t{first}"
    yield from (f"\t{value}" for value in more)


def labels(title: str, values: Fields | None) -> Iterator[str]:
    return several(title, (f"{key}={value}" for key, value in sorted((values or {}).items())))


def annotations(values: Fields | None) -> Iterator[str]:
    """Annotations, long ones cut; what `kubectl apply` keeps in one is of no interest."""
    told = {key: value for key, value in (values or {}).items() if key != LAST_APPLIED}
    return several("Annotations", _annotations(told))


def _annotations(values: Fields) -> Iterator[str]:
    for key, value in sorted(values.items()):
        lines = str(value).replace("\t", " ").rstrip("\n").split("\n")
        if len(lines) == 1 and len(key) + len(value) + 2 <= LONGEST_ANNOTATION:
            yield f"{key}: {lines[0]}"
            continue
        yield f"{key}:"
        for line in lines:
            cut = len(line) > LONGEST_ANNOTATION - 2
            yield f"  {line[: LONGEST_ANNOTATION - 2]}..." if cut else f"  {line}"


def moment(value: str | None) -> str:
    """A moment as kubectl spells it, in the time zone of the reader."""
    if not value:
        return "<unset>"
    return parse_time(value).astimezone().strftime("%a, %d %b %Y %H:%M:%S %z")


def age(value: str | None, now: datetime) -> str:
    if not value:
        return "<unknown>"
    return human_age(int((now - parse_time(value)).total_seconds()))


def amounts(values: Fields | None) -> Iterator[str]:
    """Quantities by resource."""
    return (fact(name, value) for name, value in sorted((values or {}).items()))


def controller(metadata: Fields) -> str:
    """`ReplicaSet/web-1`, or nothing if the object has no controller."""
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            return f"{owner['kind']}/{owner['name']}"
    return ""


def events(about: RelatedObjects) -> Iterator[str]:
    """Yield the lines of the object's events, the latest last."""
    if about.events is None:
        return
    if not about.events:
        yield "Events:\t<none>"
        return
    yield "Events:"
    yield "  Type\tReason\tAge\tFrom\tMessage"
    yield "  ----\t------\t----\t----\t-------"
    for event in sorted(about.events, key=last_seen):
        yield "  " + "\t".join(_event(event, about.now))


def last_seen(event: Fields) -> str:
    """When it last happened, in a form that sorts by time."""
    series = event.get("series") or {}
    times = (
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event.get("firstTimestamp"),
    )
    return next((time for time in times if time), "")


def how_often(event: Fields, now: datetime) -> str:
    """`5s`, or `5s (x3 over 2m)`."""
    first = event.get("eventTime") or event.get("firstTimestamp")
    count = (event.get("series") or {}).get("count") or event.get("count") or 1
    if count == 1:
        return age(first, now)
    return f"{age(last_seen(event), now)} (x{count} over {age(first, now)})"


def _event(event: Fields, now: datetime) -> Iterator[str]:
    path = (event.get("involvedObject") or {}).get("fieldPath")
    message = shown(str(event.get("message") or "").strip())
    yield event.get("type") or ""
    yield event.get("reason") or ""
    yield how_often(event, now)
    yield source(event)
    yield f"{path}: {message}" if path else message


def source(event: Fields) -> str:
    """Return the component that reported an event."""
    component = (event.get("source") or {}).get("component")
    return str(component or event.get("reportingComponent") or "")
