"""AllocationRepairController: repairs contradictions between Services and IPAddresses that a
killed server or a writer left, and reports those between node ports."""

from typing import Final

from msgspec.structs import replace

from kedge.api.builtin.service_networks import (
    ServiceName,
    labels,
    networks,
    parent_reference,
    parent_service,
)
from kedge.api.core_v1.service import RESOURCE as SERVICES
from kedge.api.core_v1.service_types import Service
from kedge.api.model import Document, ObjectMeta
from kedge.client.client import Client, DeletionOptions, DeletionPreconditions
from kedge.client.events import WARNING, Recorder
from kedge.client.informer import Key
from kedge.controllers.loop import ControllerLoop, together
from kedge.controllers.pod_state import is_leaving
from kedge.controllers.services.allocation_problems import (
    LEAK_SECONDS,
    address_problem,
    cluster_ips,
    is_managed,
    name_of,
    port_problems,
    service_problem,
)
from kedge.controllers.services.service_cidr import IP_ADDRESSES, SERVICE_CIDRS
from kedge.controllers.shared_informers import SharedInformers, key_of
from kedge.machinery.clock import Clock
from kedge.machinery.durations import parse_time
from kedge.machinery.errors import StatusError

COMPONENT: Final = "ipallocator-repair-controller"
AGAIN_SECONDS: Final = 180.0
"""Seconds between two looks at everything."""


class AllocationRepairController:
    """Looks at Services and IPAddresses when they change, and at all of them every three minutes.

    The server stores an IPAddress before its Service and deletes it after, so there is nothing to
    do unless the server was killed in between, or a user wrote an IPAddress.
    """

    def __init__(self, client: Client, shared: SharedInformers, clock: Clock, ports: range) -> None:
        self._client = client
        self._clock = clock
        self._ports = ports
        self._services = shared.of(SERVICES)
        self._addresses = shared.of(IP_ADDRESSES)
        self._cidrs = shared.of(SERVICE_CIDRS)
        self._recorder = Recorder(client, clock, COMPONENT)
        self._service_loop: ControllerLoop[Key] = ControllerLoop(
            "service-repair", self._reconcile_service, clock
        )
        self._address_loop: ControllerLoop[str] = ControllerLoop(
            "ip-address-repair", self._reconcile_address, clock
        )
        self._services.follow(self._service_changed)
        self._addresses.follow(self._address_changed)

    async def run(self) -> None:
        loops = self._service_loop.run(), self._address_loop.run()
        await together(*loops, self._look_again(), self._recorder.run())

    def _service_changed(self, before: Service | None, now: Service | None) -> None:
        if now is not None and (before is None or cluster_ips(before) != cluster_ips(now)):
            self._service_loop.add(key_of(now))

    def _address_changed(self, before: Document | None, now: Document | None) -> None:
        if now is not None:
            self._address_loop.add(now.metadata.name)
        elif before is not None and (parent := parent_service(before.content)):
            self._service_loop.add(Key(*parent))

    async def _look_again(self) -> None:
        while True:
            for service, problem in port_problems(self._services, self._ports):
                self._recorder.record(service, WARNING, problem.reason, problem.message)
                await self._clock.give_way()
            await self._clock.sleep(AGAIN_SECONDS)
            for service in list(self._services):
                self._service_loop.add(key_of(service))
            for address in list(self._addresses):
                self._address_loop.add(address.metadata.name)

    # Services.

    async def _reconcile_service(self, key: Key) -> None:
        service = self._services.get(key.name, key.namespace)
        if service is None or is_leaving(service):
            return
        for ip in cluster_ips(service):
            await self._repair(service, ip)

    async def _repair(self, service: Service, ip: str) -> None:
        address = self._addresses.get(ip) or await self._live_address(ip)
        named = parent_service(address.content) if address is not None else None
        parent = self._services.get(named.name, named.namespace) if named is not None else None
        ranges = [network for cidr in self._cidrs for network in networks(cidr.content)]
        if not ranges:
            return  # the default ServiceCIDR is about to be created
        problem = service_problem(service, ip, address=address, parent=parent, ranges=ranges)
        if problem is None or not await self._is_current(service):
            return
        if problem.reason:
            self._recorder.record(service, WARNING, problem.reason, problem.message)
        if problem.rewrites:
            if address is not None:
                await self._delete(address)
            await self._create(ip, name_of(service))

    async def _live_address(self, ip: str) -> Document | None:
        """Return the IPAddress from the server: the watch of IPAddresses may be behind that of
        Services."""
        try:
            return await self._client.get(IP_ADDRESSES, ip)
        except StatusError as error:
            if error.code != 404:
                raise
            return None

    async def _is_current(self, service: Service) -> bool:
        live = await self._live_service(name_of(service))
        return live is not None and cluster_ips(live) == cluster_ips(service)

    async def _live_service(self, name: ServiceName) -> Service | None:
        try:
            return await self._client.get(SERVICES, name.name, name.namespace)
        except StatusError as error:
            if error.code != 404:
                raise
            return None

    async def _create(self, ip: str, service: ServiceName) -> None:
        made = Document(
            metadata=ObjectMeta(name=ip, labels=labels(ip)),
            content={"spec": {"parentRef": parent_reference(service)}},
        )
        await self._client.create(IP_ADDRESSES, made)

    async def _delete(self, address: Document) -> None:
        options = DeletionOptions(preconditions=DeletionPreconditions(uid=address.metadata.uid))
        try:
            await self._client.delete(IP_ADDRESSES, address.metadata.name, options=options)
        except StatusError as error:
            if error.code not in (404, 409):
                raise

    # IPAddresses.

    async def _reconcile_address(self, name: str) -> None:
        address = self._addresses.get(name)
        if address is None or not is_managed(address):
            return
        parent = parent_service(address.content)
        service = self._services.get(parent.name, parent.namespace) if parent else None
        if address_problem(address, service) is None:
            return
        if parent is not None and (left := self._grace_left(address)) > 0:
            self._address_loop.add_later(name, left)
            return
        live = await self._live_service(parent) if parent is not None else None
        problem = address_problem(address, live)
        if problem is not None:
            about = replace(address, kind="IPAddress", apiVersion=IP_ADDRESSES.api_version)
            self._recorder.record(about, WARNING, problem.reason, problem.message)
            await self._delete(address)

    def _grace_left(self, address: Document) -> float:
        since = parse_time(address.metadata.creationTimestamp)
        return LEAK_SECONDS - (self._clock.now() - since).total_seconds()
