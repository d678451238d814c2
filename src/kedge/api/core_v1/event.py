"""Event: a note about something that happened to an object, kept for an hour."""

from collections.abc import Callable, Iterator

from msgspec import field

from kedge.api import rules
from kedge.api.core_v1.references import ObjectReference
from kedge.api.model import Int32, MicroTime, Model, Object, Time, null
from kedge.api.presentation import Age, Column, Presentation
from kedge.api.resource import Resource
from kedge.api.strategy import Strategy
from kedge.machinery import names
from kedge.machinery.errors import FieldError

TTL = 3600
WORD_LIMIT = 128
MESSAGE_LIMIT = 1024


class EventSeries(Model):
    """How often the same thing happened again."""

    count: Int32 = 0
    """How often so far."""
    lastObservedTime: MicroTime | None = field(default_factory=null)
    """When it last happened."""


class EventSource(Model):
    """The component that reported the event, in the older form."""

    component: str = ""
    """Name of the component."""
    host: str = ""
    """The node of the component."""


class Event(Object):
    """A report of something that happened to an object, for people to read."""

    __required__ = ("metadata", "involvedObject")

    action: str = ""
    """The action that was taken for the object."""
    count: Int32 = 0
    """How often it happened."""
    eventTime: MicroTime | None = field(default_factory=null)
    """When it was first seen, exactly."""
    firstTimestamp: Time | None = field(default_factory=null)
    """When it was first seen."""
    involvedObject: ObjectReference = field(default_factory=ObjectReference)
    """The object that it happened to."""
    lastTimestamp: Time | None = field(default_factory=null)
    """When it was last seen."""
    message: str = ""
    """A human-readable description of the event."""
    reason: str = ""
    """The reason, as one word."""
    related: ObjectReference | None = None
    """A second object that the event concerns."""
    reportingComponent: str = field(default_factory=str)
    """The component that reported the event, for instance kubernetes.io/kubelet."""
    reportingInstance: str = field(default_factory=str)
    """The instance of the component, for example kubelet-xyzf."""
    series: EventSeries | None = None
    """Set if the event is repeated."""
    source: EventSource = field(default_factory=EventSource)
    """The component that reported the event, in the older form."""
    type: str = ""
    """Normal or Warning."""


def validate(obj: Event) -> Iterator[FieldError]:
    return validate_as(obj, "reportingComponent")


def validate_as(obj: Event, reporter: str) -> Iterator[FieldError]:
    """Validate an event of any version; `reporter` is the version's name of the reporting field."""
    if not obj.eventTime:
        yield from _older_namespace(obj)
        return
    homes = ("default", "kube-system")
    if not obj.involvedObject.namespace and obj.metadata.namespace not in homes:
        yield _foreign(obj)
    if not obj.reportingComponent:
        yield FieldError.required(reporter)
    yield from rules.problems(
        reporter, obj.reportingComponent, names.qualified_name(obj.reportingComponent)
    )
    for name in ("reportingInstance", "action", "reason"):
        if not (word := getattr(obj, name)):
            yield FieldError.required(name)
        yield from _at_most(WORD_LIMIT, name, word)
    yield from _at_most(MESSAGE_LIMIT, "message", obj.message)


def _older_namespace(obj: Event) -> Iterator[FieldError]:
    """Events without an exact time must lie beside their object."""
    about = obj.involvedObject.namespace
    allowed = (about,) if about else ("", "default")
    if obj.metadata.namespace not in allowed:
        yield _foreign(obj)


def _foreign(obj: Event) -> FieldError:
    why = "does not match event.namespace"
    return FieldError.invalid("involvedObject.namespace", obj.involvedObject.namespace, why)


def _at_most(limit: int, path: str, text: str) -> Iterator[FieldError]:
    if len(text) > limit and len(text.encode()) > limit:
        yield FieldError.invalid(path, "", f"can have at most {limit} characters")


def first_seen(obj: Event) -> str:
    return obj.firstTimestamp or obj.eventTime or ""


def last_seen(obj: Event) -> str:
    if obj.series is not None:
        return obj.series.lastObservedTime or ""
    return obj.lastTimestamp or first_seen(obj)


def count_cell(obj: Event) -> int:
    return obj.series.count if obj.series is not None else obj.count or 1


def object_cell(obj: Event) -> str:
    kind = obj.involvedObject.kind.lower()
    return f"{kind}/{obj.involvedObject.name}" if obj.involvedObject.name else kind


def source_cell(obj: Event) -> str:
    component = obj.source.component or obj.reportingComponent
    instance = obj.source.host or obj.reportingInstance
    return f"{component}, {instance}" if instance else component


def _source_field(obj: Event) -> str:
    return obj.source.component or obj.reportingComponent


COLUMNS = (
    Column(
        name="Last Seen",
        cell=lambda obj: Age(last_seen(obj)),
        description="How long ago it last happened.",
    ),
    Column(name="Type", cell=lambda obj: obj.type, description="Normal or Warning."),
    Column(name="Reason", cell=lambda obj: obj.reason, description="Why, as one word."),
    Column(name="Object", cell=object_cell, description="What it happened to."),
    Column(
        name="Subobject",
        cell=lambda obj: obj.involvedObject.fieldPath,
        priority=1,
        description="The part of the object that it happened to.",
    ),
    Column(name="Source", cell=source_cell, priority=1, description="Who noticed."),
    Column(
        name="Message",
        cell=lambda obj: obj.message.strip(),
        description="What happened.",
    ),
    Column(
        name="First Seen",
        cell=lambda obj: Age(first_seen(obj)),
        priority=1,
        description="How long ago it first happened.",
    ),
    Column(name="Count", cell=count_cell, priority=1, description="How often it happened."),
    Column(
        name="Name",
        cell=lambda obj: obj.metadata.name,
        format="name",
        priority=1,
        description="Name of the event.",
    ),
)

_REFERENCE_FIELDS = (
    "kind",
    "namespace",
    "name",
    "uid",
    "apiVersion",
    "resourceVersion",
    "fieldPath",
)


def reference_fields(prefix: str) -> dict[str, Callable[[Event], str]]:
    """Field selectors for the object that an event is about."""

    def of(name: str) -> Callable[[Event], str]:
        return lambda obj: str(getattr(obj.involvedObject, name))

    return {f"{prefix}.{name}": of(name) for name in _REFERENCE_FIELDS}


RESOURCE: Resource[Event] = Resource(
    type=Event,
    plural="events",
    strategy=Strategy(
        counts_generation=False,
        ignores_propagation=True,
        allows_create_on_update=True,
        ttl=TTL,
        check_name=names.path_segment,
        validate=validate,
    ),
    presentation=Presentation(
        short_names=["ev"],
        fields={
            **reference_fields("involvedObject"),
            "reason": lambda obj: obj.reason,
            "reportingComponent": lambda obj: obj.reportingComponent,
            "source": _source_field,
            "type": lambda obj: obj.type,
        },
        columns=COLUMNS,
    ),
)
