"""Informer: keeps a receiver in step with a resource, by one list and a watch that is resumed."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from kedge.client.client import Client, WatchEvent
from kedge.client.view import V, View
from kedge.client.workqueue import Backoff
from kedge.machinery.clock import Clock, machine_clock
from kedge.machinery.errors import StatusError, qualified

log = logging.getLogger(__name__)

BRIEF = 1.0
"""A watch that ends sooner than this, in seconds, without any event has failed."""
LARGE: Final = 64 << 10
"""An object of at least so many bytes is decoded in a thread: a megabyte takes a tenth of a second
and more, in which no request would be answered."""


class Key(NamedTuple):
    """Which object of a resource."""

    namespace: str
    name: str


class HasName(Protocol):
    """The part of metadata that tells an object from the others of its kind."""

    @property
    def namespace(self) -> str: ...

    @property
    def name(self) -> str: ...


class HasKey(Protocol):
    """Anything that has metadata."""

    @property
    def metadata(self) -> HasName: ...


V_contra = TypeVar("V_contra", contravariant=True)
I = TypeVar("I", bound=HasKey)  # noqa: E741


class Receiver(Protocol[V_contra]):
    """Called for changes of objects; never waits."""

    def replace(self, objects: Iterable[V_contra]) -> Iterator[None] | None:
        """Replace all known objects by these.

        A receiver with much work per object returns an iterator that handles one object per
        step. Requests are answered between steps. `put` and `remove` are not called before the
        last step.
        """
        ...

    def put(self, obj: V_contra) -> None:
        """An object is new or has changed."""
        ...

    def remove(self, obj: V_contra) -> None:
        """An object is gone; this was its last state."""
        ...


class Cache(Generic[I]):
    """A Receiver that keeps the objects and wakes its listeners."""

    def __init__(self) -> None:
        self._objects: dict[Key, I] = {}
        self._listeners: list[Callable[[Key], None]] = []

    def listen(self, listener: Callable[[Key], None]) -> None:
        """Call a listener with the key of each object that is added, changed or deleted."""
        self._listeners.append(listener)

    def get(self, name: str, namespace: str = "") -> I | None:
        return self._objects.get(Key(namespace, name))

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[I]:
        return iter(self._objects.values())

    def replace(self, objects: Iterable[I]) -> None:
        fresh = {_key(obj): obj for obj in objects}
        gone = self._objects.keys() - fresh.keys()
        self._objects = fresh
        for key in (*fresh, *gone):
            self._tell(key)

    def put(self, obj: I) -> None:
        key = _key(obj)
        self._objects[key] = obj
        self._tell(key)

    def remove(self, obj: I) -> None:
        key = _key(obj)
        self._objects.pop(key, None)
        self._tell(key)

    def _tell(self, key: Key) -> None:
        for listener in self._listeners:
            listener(key)


def _key(obj: HasKey) -> Key:
    return Key(obj.metadata.namespace, obj.metadata.name)


async def _beside(size: int, decode: Callable[[], V]) -> V:
    """Decode an object of so many bytes, in a thread if it takes long."""
    return decode() if size < LARGE else await asyncio.to_thread(decode)


class Informer(Generic[V]):
    """Lists once, then watches for ever; lists again only if the server has forgotten too much."""

    def __init__(
        self,
        client: Client,
        view: View[V],
        receiver: Receiver[V],
        clock: Clock,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        backoff: Backoff | None = None,
        silence: float | None = None,
    ) -> None:
        """A watch without any event for `silence` seconds, not even a bookmark, is begun anew: the
        network may have lost it."""
        self.synced = asyncio.Event()
        """Set once the receiver has been given every object."""
        self.heard = 0.0
        """When the server last listed, began a watch or, if silence counts, sent an event; by the
        machine's monotonic clock."""
        self._silence = silence
        self._client = client
        self._view = view
        self._receiver = receiver
        # Pauses before another try are dealings with another process.
        self._clock = machine_clock(clock)
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._backoff = backoff or Backoff(first=0.02, most=30.0)
        self._version = ""
        self._failures = 0

    async def run(self) -> None:
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except (StatusError, OSError) as error:
                await self._recover(error)

    async def _list(self) -> None:
        # Version 0 asks for whatever the server has at hand; its cache is at least as new as any
        # event that led here.
        listing = await self._client.list_encoded(
            self._view,
            self._namespace,
            labels=self._labels,
            fields=self._fields,
            version="0",
        )
        objects: list[V] = []
        for encoded in listing.items:
            await self._clock.give_way()
            with self._skip_failing():
                objects.append(await self._decoded(encoded))
        for _ in self._receiver.replace(objects) or ():
            await self._clock.give_way()
        self._version = listing.version
        self.heard = self._clock.monotonic()
        self.synced.set()

    async def _decoded(self, encoded: bytes) -> V:
        return await _beside(len(encoded), lambda: self._view.decode(encoded))

    @contextmanager
    def _skip_failing(self) -> Iterator[None]:
        """Skip an object that raises an exception, and log the exception.

        All controllers run in one task group: an object that ended its informer would end them
        all, and again after each restart.
        """
        try:
            yield
        except Exception:
            resource = self._view.resource
            log.exception("object skipped resource=%s", qualified(resource.group, resource.plural))

    async def _watch(self) -> None:
        begun = self._clock.monotonic()
        last: WatchEvent[V] | None = None
        try:
            async with self._client.watch_as(
                self._view,
                self._namespace,
                version=self._version,
                labels=self._labels,
                fields=self._fields,
            ) as events:
                self.heard = self._clock.monotonic()
                async for event in self._heard(events) if self._silence else events:
                    await self._clock.give_way()
                    with self._skip_failing():
                        await self._receive(event)
                    last = event
                    self._failures = 0
        finally:
            # Which version was the last is only of interest now: reading it costs something.
            if last is not None:
                self._version = last.version
        if last is None and self._clock.monotonic() - begun < BRIEF:
            raise ConnectionResetError("the server ended a watch at once")

    async def _heard(self, events: AsyncIterator[WatchEvent[V]]) -> AsyncIterator[WatchEvent[V]]:
        """Yield events, and note when they came."""
        while True:
            try:
                async with asyncio.timeout(self._silence):
                    event = await anext(events)
            except StopAsyncIteration:
                return
            self.heard = self._clock.monotonic()
            yield event

    async def _receive(self, event: WatchEvent[V]) -> None:
        match event.type:
            case "ADDED" | "MODIFIED":
                self._receiver.put(await _beside(event.size, lambda: event.object))
            case "DELETED":
                self._receiver.remove(await _beside(event.size, lambda: event.object))

    async def _recover(self, error: StatusError | OSError) -> None:
        """Wait a little longer after each failure in a row, and say so after the first."""
        if isinstance(error, StatusError) and error.code == 410:
            self._version = ""
            if not self._failures:
                self._failures = 1
                return
        self._failures += 1
        if self._failures == 3:
            resource = self._view.resource
            name = qualified(resource.group, resource.plural)
            log.warning("cannot follow resource=%s error=%r; trying again", name, str(error))
        await self._clock.sleep(self._backoff.delay(self._failures))
