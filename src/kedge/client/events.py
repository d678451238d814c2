"""Events: what components tell people about objects, the same thing counted instead of repeated.

Aggregation follows the recorder that Kubernetes' own components use, so that neither the number of
events nor their texts surprise anybody.
"""

import asyncio
import hashlib
import logging
from collections import OrderedDict, deque
from datetime import datetime, timedelta
from typing import Final, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from kedge.api.core_v1.event import MESSAGE_LIMIT, RESOURCE, Event, EventSource
from kedge.api.core_v1.references import ObjectReference
from kedge.api.model import Object, ObjectMeta
from kedge.client.client import STRATEGIC_PATCH, Client
from kedge.client.transport import Unreachable
from kedge.machinery.clock import Clock
from kedge.machinery.durations import format_time
from kedge.machinery.errors import StatusError

log = logging.getLogger(__name__)

NORMAL: Final = "Normal"
WARNING: Final = "Warning"

WAITING: Final = 1000
"""Events that may wait to be written; further ones are dropped, as upstream's recorder does."""
REMEMBERED: Final = 4096
"""Events and objects that are remembered, to count what comes again."""
SIMILAR: Final = 10
"""Events that may differ in nothing but their message before they are combined into one."""
SIMILAR_WITHIN: Final = timedelta(minutes=10)
COMBINED: Final = "(combined from similar events): "
BURST: Final = 25
"""How many events one object may have in a row; after that, one in five minutes."""
REFILL: Final = timedelta(minutes=5)
TRIES: Final = 12
PAUSE: Final = 10.0
"""Seconds between tries if the server cannot be reached."""

K = TypeVar("K")
V = TypeVar("V")


class _BoundedMap(OrderedDict[K, V], Generic[K, V]):
    """The latest things only."""

    def remember(self, key: K, value: V) -> None:
        self[key] = value
        self.move_to_end(key)
        if len(self) > REMEMBERED:
            self.popitem(last=False)


class EventDetails(msgspec.Struct, frozen=True):
    """One event to record about an object."""

    about: ObjectReference
    type: str
    reason: str
    message: str

    @property
    def kind(self) -> tuple[object, ...]:
        """Return the key of events that differ only in their message."""
        about = self.about
        where = about.apiVersion, about.kind, about.namespace, about.name, about.uid
        return (*where, about.fieldPath, self.type, self.reason)


Digest = bytes
"""Stands for texts that only need to be recognised. A tenant chooses most of them, up to a kilobyte
each, and every component remembers thousands."""


def _digest(*parts: object) -> Digest:
    return hashlib.blake2b(repr(parts).encode(errors="replace"), digest_size=16).digest()


class _EventSeries(msgspec.Struct):
    """Events of one kind, of late."""

    last: datetime
    messages: set[Digest] = msgspec.field(default_factory=set)


class _CountedEvent(msgspec.Struct, frozen=True):
    """The part of an event that is kept in case it comes again."""

    name: str
    first: str
    count: int


class _Allowance(msgspec.Struct):
    """How many more events an object may have."""

    at: datetime
    left: float = BURST

    def take(self, now: datetime) -> bool:
        self.left = min(BURST, self.left + (now - self.at) / REFILL)
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


class Correlator:
    """Decides what becomes of each happening: a new event, one more of a known one, or nothing."""

    def __init__(self, source: EventSource) -> None:
        self._source = source
        self._similar: _BoundedMap[Digest, _EventSeries] = _BoundedMap()
        self._allowances: _BoundedMap[Digest, _Allowance] = _BoundedMap()
        self._events: _BoundedMap[Digest, _CountedEvent] = _BoundedMap()
        self._named = 0
        """The number in the name of the latest event."""

    def event(self, happening: EventDetails, now: datetime) -> Event | None:
        """The event as it should now be, counting those before it; None if there are too many."""
        key, message = self._combined(happening, now)
        if not self._allowance(happening.about, now).take(now):
            return None
        made = self._new(happening, message, now)
        known = self._events.get(key)
        if known is not None:
            meta = replace(made.metadata, name=known.name)
            made = replace(made, metadata=meta, count=known.count + 1, firstTimestamp=known.first)
        self._events.remember(key, _counted(made))
        return made

    def anew(self, event: Event, now: datetime) -> Event:
        """The event under another name, the one that was counted being gone from the server."""
        made = replace(event, metadata=self._metadata(event.involvedObject, now))
        for key, known in self._events.items():
            if known.name == event.metadata.name:
                self._events[key] = _counted(made)
                break
        return made

    def _combined(self, happening: EventDetails, now: datetime) -> tuple[Digest, str]:
        """Return the key under which an event is counted, and its message."""
        kind = _digest(happening.kind)
        similar = self._similar.get(kind)
        if similar is None or now - similar.last > SIMILAR_WITHIN:
            similar = _EventSeries(now)
        similar.last = now
        similar.messages.add(message := _digest(happening.message))
        self._similar.remember(kind, similar)
        if len(similar.messages) < SIMILAR:
            return _digest(kind, message), happening.message
        similar.messages.pop()
        return kind, _within_limit(COMBINED + happening.message)

    def _allowance(self, about: ObjectReference, now: datetime) -> _Allowance:
        key = _digest(about.apiVersion, about.kind, about.namespace, about.name, about.uid)
        allowance = self._allowances.get(key) or _Allowance(now)
        self._allowances.remember(key, allowance)
        return allowance

    def _new(self, happening: EventDetails, message: str, now: datetime) -> Event:
        stamp = format_time(now)
        return Event(
            metadata=self._metadata(happening.about, now),
            involvedObject=happening.about,
            type=happening.type,
            reason=happening.reason,
            message=message,
            source=self._source,
            reportingComponent=self._source.component,
            reportingInstance=self._source.host,
            firstTimestamp=stamp,
            lastTimestamp=stamp,
            count=1,
        )

    def _metadata(self, about: ObjectReference, now: datetime) -> ObjectMeta:
        nanos = int(now.timestamp()) * 10**9 + now.microsecond * 1000
        # Two events of one moment still need two names.
        self._named = max(nanos, self._named + 1)
        name = f"{about.name}.{self._named:x}"
        return ObjectMeta(name=name, namespace=about.namespace or "default")


def _counted(event: Event) -> _CountedEvent:
    return _CountedEvent(event.metadata.name, event.firstTimestamp or "", event.count)


def _within_limit(message: str) -> str:
    return message if len(message) <= MESSAGE_LIMIT else f"{message[: MESSAGE_LIMIT - 3]}..."


class Recorder:
    """Records events about objects, for one component. Its owner must `run` it."""

    def __init__(self, client: Client, clock: Clock, component: str, host: str = "") -> None:
        self._client = client
        self._clock = clock
        self._component = component
        self._correlator = Correlator(EventSource(component=component, host=host))
        self._waiting: deque[tuple[EventDetails, datetime]] = deque()
        self._arrival = asyncio.Event()
        self._lost = 0

    def record(
        self,
        obj: Object | ObjectReference,
        type: str,
        reason: str,
        message: str,
        *,
        field_path: str = "",
    ) -> None:
        """Tell what happened to an object, or to a part of it; never waits, never fails.

        `type` is NORMAL or WARNING, `reason` one CamelCase word, `message` for people.
        """
        about = obj if isinstance(obj, ObjectReference) else reference_to(obj)
        if field_path:
            about = replace(about, fieldPath=field_path)
        if len(self._waiting) >= WAITING:
            self._lost += 1
            return
        happening = EventDetails(about, type, reason, _within_limit(message))
        self._waiting.append((happening, self._clock.now()))
        self._arrival.set()

    async def run(self) -> None:
        """Write down what is recorded, for ever."""
        while True:
            while self._waiting:
                happening, moment = self._waiting.popleft()
                await self._write(happening, moment)
            if self._lost:
                log.warning("events lost component=%s count=%d", self._component, self._lost)
                self._lost = 0
            self._arrival.clear()
            await self._arrival.wait()

    async def _write(self, happening: EventDetails, moment: datetime) -> None:
        event = self._correlator.event(happening, moment)
        if event is None:
            return
        for _ in range(TRIES):
            try:
                await self._send(event)
                return
            except StatusError as error:
                # A namespace that is leaving takes no events, and those who leave need none.
                log.debug("event refused reason=%s error=%r", event.reason, str(error))
                return
            except (Unreachable, OSError) as error:
                log.debug("event not delivered reason=%s error=%r", event.reason, str(error))
                await self._clock.sleep(PAUSE)

    async def _send(self, event: Event) -> None:
        if event.count == 1:
            await self._client.create(RESOURCE, event)
            return
        meta = event.metadata
        change = {
            "count": event.count,
            "lastTimestamp": event.lastTimestamp,
            "message": event.message,
        }
        try:
            await self._client.patch(
                RESOURCE, meta.name, change, meta.namespace, form=STRATEGIC_PATCH
            )
        except StatusError as error:
            if error.code != 404:
                raise
            # Events are forgotten after an hour.
            again = self._correlator.anew(event, self._clock.now())
            await self._client.create(RESOURCE, again)


_VERSIONS: Final = {"core_v1": "v1", "apps_v1": "apps/v1", "batch_v1": "batch/v1"}
"""The API version by package of the usual kinds, without loading the whole catalog."""


def _version_of(kind: type[Object]) -> str:
    package = kind.__module__.split(".")[2]
    if package in _VERSIONS:
        return _VERSIONS[package]
    from kedge.api.catalog import HAND_WRITTEN

    return next(resource.api_version for resource in HAND_WRITTEN if resource.type is kind)


def reference_to(obj: Object) -> ObjectReference:
    """Return the reference to the object of an event."""
    kind, api_version = obj.kind, obj.apiVersion
    if not kind:
        # Objects that were made here or came in a list do not say themselves what they are.
        kind, api_version = type(obj).__name__, _version_of(type(obj))
    meta = obj.metadata
    return ObjectReference(
        apiVersion=api_version,
        kind=kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resourceVersion=meta.resourceVersion,
    )
