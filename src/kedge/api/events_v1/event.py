"""Event of events.k8s.io: the events of the core group under newer names and stricter rules."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec import field
from msgspec.structs import replace

from kedge.api import rules
from kedge.api.core_v1 import event as core
from kedge.api.core_v1.event import EventSource
from kedge.api.core_v1.references import ObjectReference
from kedge.api.internal_forms import internal_form
from kedge.api.model import Int32, MicroTime, Model, Object, Time, null
from kedge.api.presentation import Column, Presentation
from kedge.api.resource import Resource, StoredAs
from kedge.api.strategy import Strategy
from kedge.machinery import names
from kedge.machinery.errors import FieldError

_CORE_NAMES = {
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_NAMES = {old: new for new, old in _CORE_NAMES.items()}


class EventSeries(Model):
    """How often the same thing happened again."""

    __required__ = ("count", "lastObservedTime")

    count: Int32 = 0
    """How often so far; at least 2."""
    lastObservedTime: MicroTime | None = field(default_factory=null)
    """When it last happened."""


class Event(Object):
    """A report of something that happened to an object, for people to read."""

    __required__ = ("eventTime",)

    action: str = ""
    """The action that was taken for the object."""
    deprecatedCount: Int32 = 0
    """How often it happened, in the older form."""
    deprecatedFirstTimestamp: Time | None = field(default_factory=null)
    """When it was first seen, in the older form."""
    deprecatedLastTimestamp: Time | None = field(default_factory=null)
    """When it was last seen, in the older form."""
    deprecatedSource: EventSource = field(default_factory=EventSource)
    """The component that reported the event, in the older form."""
    eventTime: MicroTime | None = field(default_factory=null)
    """When it was first seen."""
    note: str = ""
    """A human-readable description of the event."""
    reason: str = ""
    """Why, as one word."""
    regarding: ObjectReference = field(default_factory=ObjectReference)
    """The object that it happened to."""
    related: ObjectReference | None = None
    """A second object that has to do with it."""
    reportingController: str = ""
    """The component that reported the event, for instance kubernetes.io/kubelet."""
    reportingInstance: str = ""
    """Which one of them, for instance kubelet-xyzf."""
    series: EventSeries | None = None
    """Set if it keeps happening."""
    type: str = ""
    """Normal or Warning."""


def as_core(obj: Event) -> core.Event:
    """The same event as the core group has it; rules and columns are written for that."""
    series = None
    if obj.series is not None:
        when = obj.series.lastObservedTime
        series = core.EventSeries(count=obj.series.count, lastObservedTime=when)
    return core.Event(
        metadata=obj.metadata,
        action=obj.action,
        count=obj.deprecatedCount,
        eventTime=obj.eventTime,
        firstTimestamp=obj.deprecatedFirstTimestamp,
        involvedObject=obj.regarding,
        lastTimestamp=obj.deprecatedLastTimestamp,
        message=obj.note,
        reason=obj.reason,
        related=obj.related,
        reportingComponent=obj.reportingController,
        reportingInstance=obj.reportingInstance,
        series=series,
        source=obj.deprecatedSource,
        type=obj.type,
    )


def validate(obj: Event) -> Iterator[FieldError]:
    event = as_core(obj)
    yield from core.validate_as(event, "reportingController")
    # Only what is made here must be in the new form; older events may still be updated.
    if not obj.metadata.resourceVersion:
        yield from _series(event.series)
        yield from _new_form(event)


def _series(series: core.EventSeries | None) -> Iterator[FieldError]:
    if series is None:
        return
    if series.count < 2:
        yield FieldError.invalid("series.count", "", "should be at least 2")
    if not series.lastObservedTime:
        yield FieldError.required("series.lastObservedTime")


def _new_form(event: core.Event) -> Iterator[FieldError]:
    if not event.eventTime:
        yield FieldError.required("eventTime")
    if event.type not in ("Normal", "Warning"):
        yield FieldError.invalid("type", "", f"has invalid value: {event.type}")
    for name in ("firstTimestamp", "lastTimestamp", "count"):
        if getattr(event, name):
            yield FieldError.invalid(name, "", "needs to be unset")
    if event.source.component or event.source.host:
        yield FieldError.invalid("source", "", "needs to be unset")


_FIXED = (
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "type",
    "eventTime",
    "action",
    "related",
    "reportingInstance",
)


_FORMS = {
    "involvedObject": "core.ObjectReference",
    "related": "*core.ObjectReference",
    "source": "core.EventSource",
    "firstTimestamp": "t",
    "lastTimestamp": "t",
    "eventTime": "t",
}
"""The types of the fields that messages quote in another form."""


def validate_update(new: Event, old: Event) -> Iterator[FieldError]:
    now, before = as_core(new), as_core(old)
    if now.series != before.series:
        yield from _series(now.series)
    for name in _FIXED:
        if (wanted := getattr(now, name)) != getattr(before, name):
            shown = internal_form(wanted, _FORMS[name]) if name in _FORMS else wanted
            yield FieldError.invalid(name, shown, rules.IMMUTABLE)
    yield from rules.unchanged(
        "reportingController", now.reportingComponent, before.reportingComponent
    )


_REPORTERS: Final = {"reportingComponent": "", "reportingInstance": ""}
"""Fields that the core group shows even if they are empty, and this group does not."""


def to_stored(document: dict[str, Any]) -> dict[str, Any]:
    """An event of this group as the core group stores it."""
    renamed = {_CORE_NAMES.get(name, name): value for name, value in document.items()}
    return _REPORTERS | renamed | {"apiVersion": "v1"}


def from_stored(document: dict[str, Any]) -> dict[str, Any]:
    """A stored event under the names of this group."""
    renamed = {
        _NAMES.get(name, name): value
        for name, value in document.items()
        if value != "" or name not in _REPORTERS
    }
    return renamed | {"apiVersion": "events.k8s.io/v1"}


def _through_core(read: Callable[[Any], Any]) -> Callable[[Event], Any]:
    return lambda obj: read(as_core(obj))


def _columns() -> Iterator[Column]:
    for column in core.COLUMNS:
        yield replace(column, cell=_through_core(column.cell))


_FIELD_NAMES = {
    **dict(
        zip(
            core.reference_fields("regarding"),
            core.reference_fields("involvedObject"),
            strict=True,
        )
    ),
    "reportingController": "reportingComponent",
}

RESOURCE: Resource[Event] = Resource(
    type=Event,
    group="events.k8s.io",
    plural="events",
    store_as=StoredAs(core.RESOURCE, to_stored, from_stored, _FIELD_NAMES),
    strategy=Strategy(
        counts_generation=False,
        ignores_propagation=True,
        allows_create_on_update=True,
        ttl=core.TTL,
        check_name=names.dns_subdomain,
        validate=validate,
        validate_update=validate_update,
    ),
    presentation=Presentation(
        short_names=["ev"],
        fields={
            **{
                name: _through_core(read)
                for name, read in core.reference_fields("regarding").items()
            },
            "reason": lambda obj: obj.reason,
            "reportingController": lambda obj: obj.reportingController,
            "type": lambda obj: obj.type,
        },
        columns=tuple(_columns()),
    ),
)
