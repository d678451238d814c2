"""Services and EndpointSlices of the cluster, kept up to date by watches."""

import asyncio
from collections.abc import Callable, Iterable, Iterator

from kedge.api.core_v1 import service
from kedge.api.core_v1.service_types import Service
from kedge.api.discovery_v1 import endpoint_slice
from kedge.api.discovery_v1.endpoint_slice import EndpointSlice
from kedge.client.client import Client
from kedge.client.informer import Cache, Informer, Key
from kedge.client.view import objects
from kedge.machinery.clock import Clock
from kedge.node.services.service_ports import SERVICE_NAME

Listener = Callable[[Key], None]
"""Called with the name of a Service that changed, or whose endpoints changed."""


class ServiceWatch:
    """Watches Services and EndpointSlices, and wakes its listeners. The owner must `run` it."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self.services: Cache[Service] = Cache()
        self._slices = SlicesByService(self._tell)
        self._listeners: list[Listener] = []
        self._informers = (
            Informer(client, objects(service.RESOURCE), self.services, clock),
            Informer(client, objects(endpoint_slice.RESOURCE), self._slices, clock),
        )
        self.services.listen(self._tell)

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def slices(self, of: Key) -> list[EndpointSlice]:
        """Return the EndpointSlices of a Service."""
        return self._slices.of(of)

    async def synced(self) -> None:
        """Wait until all Services and EndpointSlices have been listed once."""
        for each in self._informers:
            await each.synced.wait()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for each in self._informers:
                tasks.create_task(each.run())

    def _tell(self, key: Key) -> None:
        for listener in self._listeners:
            listener(key)


class SlicesByService:
    """EndpointSlices by the Service that their label names. Fulfils informer.Receiver."""

    def __init__(self, changed: Listener) -> None:
        self._changed = changed
        self._slices: dict[Key, EndpointSlice] = {}
        self._of: dict[Key, set[Key]] = {}

    def of(self, service: Key) -> list[EndpointSlice]:
        return [self._slices[key] for key in sorted(self._of.get(service, ()))]

    def replace(self, objects: Iterable[EndpointSlice]) -> Iterator[None]:
        fresh = {_key(each): each for each in objects}
        for key in self._slices.keys() - fresh.keys():
            self.remove(self._slices[key])
            yield
        for each in fresh.values():
            self.put(each)
            yield

    def put(self, obj: EndpointSlice) -> None:
        key, named = _key(obj), _service(obj)
        before = self._slices.get(key)
        if before is not None and _service(before) != named:
            self.remove(before)
        self._slices[key] = obj
        self._of.setdefault(named, set()).add(key)
        self._changed(named)

    def remove(self, obj: EndpointSlice) -> None:
        known = self._slices.pop(_key(obj), None)
        if known is None:
            return
        named = _service(known)
        held = self._of[named]
        held.discard(_key(known))
        if not held:
            del self._of[named]
        self._changed(named)


def _key(obj: EndpointSlice) -> Key:
    return Key(obj.metadata.namespace, obj.metadata.name)


def _service(obj: EndpointSlice) -> Key:
    return Key(obj.metadata.namespace, obj.metadata.labels.get(SERVICE_NAME, ""))
