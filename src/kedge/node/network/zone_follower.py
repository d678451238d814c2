"""Follows the objects of the API that have names in DNS."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec.structs import replace

from kedge.api.core_v1 import namespace
from kedge.api.core_v1.service_types import Service
from kedge.api.discovery_v1 import endpoint_slice
from kedge.api.discovery_v1.endpoint_slice import EndpointSlice
from kedge.client.client import Client
from kedge.client.informer import Cache, Informer, Key
from kedge.client.view import Outline, objects, outlines
from kedge.dns.cluster_index import ClusterIndex
from kedge.machinery.clock import Clock

Services = Callable[[], Awaitable[Cache[Service]]]
"""Returns all Services, once they are known."""
Update = Callable[[Key], None]


class ZoneFollower:
    """Keeps an index up to date. The owner must `run` it."""

    def __init__(
        self,
        client: Client,
        services: Services,
        clock: Clock,
        service_address: Callable[[str], str] = str,
    ) -> None:
        """`service_address` returns the address at which pods find a cluster IP."""
        self.index: Final = ClusterIndex()
        self.synced: Final = asyncio.Event()
        """Set once the index holds every object."""
        self._services = services
        self._service_address = service_address
        self._clock = clock
        self._slices: Cache[EndpointSlice] = Cache()
        self._namespaces: Cache[Outline] = Cache()
        self._informers: Final = (
            Informer(client, objects(endpoint_slice.RESOURCE), self._slices, clock),
            Informer(client, outlines(namespace.RESOURCE), self._namespaces, clock),
        )
        self._changes: dict[tuple[Update, Key], None] = {}
        """A list arrives at once; the index takes its objects in turns of the event loop."""
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Follow the API until cancelled."""
        self._slices.listen(lambda key: self._note(self._update_slice, key))
        self._namespaces.listen(lambda key: self._note(self._update_namespace, key))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._apply())
            for each in self._informers:
                tasks.create_task(each.run())
            await self._follow_services()
            for each in self._informers:
                await each.synced.wait()
            # The end of everything that the first lists held.
            self._note(lambda key: self.synced.set(), Key("", ""))

    async def _follow_services(self) -> None:
        services = await self._services()

        def update(key: Key) -> None:
            found = services.get(key.name, key.namespace)
            if found is not None:
                self.index.put_service(self._as_seen(found))
            else:
                self.index.remove_service(key.namespace, key.name)

        services.listen(lambda key: self._note(update, key))
        for service in services:
            self._note(update, Key(service.metadata.namespace, service.metadata.name))

    def _as_seen(self, service: Service) -> Service:
        """Return a Service with the addresses at which pods find it."""
        spec = service.spec
        address = self._service_address(spec.clusterIP)
        if address == spec.clusterIP:
            return service
        seen = replace(
            spec,
            clusterIP=address,
            clusterIPs=[self._service_address(each) for each in spec.clusterIPs],
        )
        return replace(service, spec=seen)

    def _note(self, update: Update, key: Key) -> None:
        self._changes[update, key] = None
        self._changed.set()

    async def _apply(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._changes:
                await self._clock.give_way()
                update, key = next(iter(self._changes))
                del self._changes[update, key]
                update(key)

    def _update_slice(self, key: Key) -> None:
        found = self._slices.get(key.name, key.namespace)
        if found is not None:
            self.index.put_slice(found)
        else:
            self.index.remove_slice(key.namespace, key.name)

    def _update_namespace(self, key: Key) -> None:
        if self._namespaces.get(key.name) is not None:
            self.index.put_namespace(key.name)
        else:
            self.index.remove_namespace(key.name)
