"""ServiceAllocator: gives a Service its addresses and node ports while it is written."""

import asyncio
from ipaddress import IPv4Network
from random import Random
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kedge.api.builtin.service_networks import SERVICE_RANGE, ServiceName
from kedge.api.core_v1.service import prepare_for_create
from kedge.api.core_v1.service_types import Service, ServiceSpec
from kedge.api.core_v1.service_validation import cluster_ip_errors, is_headless
from kedge.api.model import Object
from kedge.apiserver.admission.chain import Attempt
from kedge.apiserver.allocation.address_ranges import (
    ALLOCATED,
    FULL,
    AddressRange,
    draw_address,
    fault,
    ranges_of,
)
from kedge.apiserver.allocation.address_records import AddressInUse, AddressRecords
from kedge.apiserver.allocation.families import family_errors
from kedge.apiserver.allocation.ledger import Allocated, AllocationLedger, AllocationRaced
from kedge.apiserver.allocation.node_ports import (
    PortAllocation,
    PortInUse,
    first_ports,
    later_ports,
)
from kedge.apiserver.request import Request, dry_run
from kedge.apiserver.watchcache import Change, ResourceCache
from kedge.machinery.errors import FieldError, internal, invalid

if TYPE_CHECKING:
    from kedge.apiserver.allocation.port_records import PortRecords


class ServiceAllocator:
    """Stands last in the admission chain: what it chooses no plugin changes, and what it stores
    no plugin refuses any more. It is part of what a Service is and cannot be turned off."""

    name = "ServiceAddresses"

    def __init__(
        self,
        services: ResourceCache,
        service_cidrs: ResourceCache,
        records: AddressRecords,
        ports: range,
        random: Random,
        network: IPv4Network = SERVICE_RANGE,
        shared_ports: "PortRecords | None" = None,
    ) -> None:
        """`shared_ports` has node ports that servers of one store give away; None if there can be
        no other server."""
        self.network = network
        """The cluster IPs that the cluster has from the start."""
        self._services = services
        self._service_cidrs = service_cidrs
        self._records = records
        self._ports = ports
        self._random = random
        self._shared_ports = shared_ports
        self._ledger = AllocationLedger(services, self._freed)
        self._ranges: list[AddressRange] = []
        service_cidrs.listeners.add(self._ranges_changed)

    async def run(self) -> None:
        """Delete the records of what Services gave up, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._records.run(self._ledger.is_taken))
            if self._shared_ports is not None:
                tasks.create_task(self._shared_ports.run())

    def _freed(self, allocated: Allocated, up_to: int) -> None:
        if isinstance(allocated, str):
            self._records.delete_soon(allocated, up_to)
        elif self._shared_ports is not None:
            self._shared_ports.delete_soon(allocated, up_to)

    async def mutate(self, attempt: Attempt) -> Object | None:
        """Choose, and hold for the request."""
        service = attempt.object
        if not isinstance(service, Service) or not _allocates(attempt):
            return service
        old = attempt.old.spec if isinstance(attempt.old, Service) else None
        # A request that tries again, under another name or on a newer object, begins anew.
        self.release(attempt.request)
        return self._allocated(attempt.request, service, old)

    async def validate(self, attempt: Attempt) -> None:
        """Store the IPAddresses of new addresses, now that only the store can refuse the write."""
        service, request = attempt.object, attempt.request
        if not isinstance(service, Service) or dry_run(request, "CreateOptions"):
            return
        if attempt.operation == "CREATE" and self._services.get(request.key) is not None:
            return  # the store refuses it
        for each in tuple(self._ledger.held(request)):
            if isinstance(each, str):
                revision = await self._store(each, service)
                self._ledger.note_record(request, each, revision)
            elif self._shared_ports is not None:
                revision = await self._store_port(self._shared_ports, each, request.key)
                self._ledger.note_record(request, each, revision)

    def holds(self, request: Request) -> bool:
        """Whether addresses or ports are held for the write."""
        return bool(self._ledger.held(request))

    def release(self, request: Request) -> None:
        """The write is over, one way or the other."""
        self._ledger.release(request)

    # Choosing.

    def _allocated(self, request: Request, service: Service, old: ServiceSpec | None) -> Service:
        name = service.metadata.name
        _refuse(name, family_errors(_listed(service.spec), old))
        if old is None:
            service = prepare_for_create(service)
        if any(cluster_ip_errors(service.spec)):
            return service  # validation reports them
        spec, new = self._with_addresses(name, service.spec, old)
        allocation = PortAllocation(name, self._ports, self._is_port_taken, self._random)
        spec = later_ports(spec, old, allocation) if old else first_ports(spec, allocation)
        self._ledger.hold(request, [*new, *sorted(allocation.chosen)])
        return service if spec == service.spec else replace(service, spec=spec)

    def _with_addresses(
        self, name: str, spec: ServiceSpec, old: ServiceSpec | None
    ) -> tuple[ServiceSpec, list[str]]:
        """Return the spec with its addresses, and those of them that are new."""
        if spec.type == "ExternalName" or is_headless(spec):
            return spec, []
        kept = old.clusterIPs if old is not None and old.type != "ExternalName" else ()
        if kept:
            # Addresses do not change while the Service has any; validation says so.
            return spec, []
        addresses = list(spec.clusterIPs) or [self._draw(name)]
        for address in spec.clusterIPs:
            if why := self._fault(address):
                why = f"failed to allocate IP {address}: {why}"
                error = FieldError.invalid("spec.clusterIPs", spec.clusterIPs, why)
                raise invalid("", "Service", name, [error])
        return replace(spec, clusterIP=addresses[0], clusterIPs=addresses), addresses

    def _draw(self, name: str) -> str:
        address = draw_address(self._address_ranges(), self._is_in_use, self._random)
        if address is None:
            raise internal(f'failed to allocate a serviceIP for Service "{name}": {FULL}')
        return address

    def _is_in_use(self, address: str) -> bool:
        return self._ledger.is_taken(address) or self._records.find(address) is not None

    def _is_port_taken(self, port: int) -> bool:
        busy = self._shared_ports is not None and self._shared_ports.is_busy(port)
        return busy or self._ledger.is_taken(port)

    def _blocks(self, address: str) -> bool:
        return self._records.blocks(
            address, self._ledger.owner, lambda revision: self._is_dead(address, revision)
        )

    def _is_dead(self, allocated: Allocated, revision: int) -> bool:
        """Return whether a record of something that no stored Service has may be replaced."""
        return self._shared_ports is None or self._ledger.is_dead(allocated, revision)

    def _fault(self, address: str) -> str:
        if why := fault(self._address_ranges(), address):
            return why
        taken = self._ledger.is_taken(address) or self._blocks(address)
        return ALLOCATED if taken else ""

    def _address_ranges(self) -> list[AddressRange]:
        if not self._ranges:
            self._ranges = ranges_of(
                (item.document() for item in self._service_cidrs.values()), self.network
            )
        return self._ranges

    def _ranges_changed(self, change: Change | None) -> None:
        self._ranges = []

    # Storing.

    async def _store_port(self, ports: "PortRecords", port: int, service: str) -> int:
        try:
            return await ports.store(port, service, lambda revision: self._is_dead(port, revision))
        except PortInUse:
            raise AllocationRaced(f"failed to allocate node port {port}: {ALLOCATED}") from None

    async def _store(self, address: str, service: Service) -> int:
        meta = service.metadata
        owner = ServiceName(meta.namespace, meta.name)
        try:
            return await self._records.store(address, owner, lambda: not self._blocks(address))
        except AddressInUse:
            # An IPAddress was created by hand, or by another server, since it was chosen.
            raise AllocationRaced(f"failed to allocate IP {address}: {ALLOCATED}") from None


def _allocates(attempt: Attempt) -> bool:
    return attempt.operation in ("CREATE", "UPDATE") and not attempt.request.subresource


def _listed(spec: ServiceSpec) -> ServiceSpec:
    """Return the spec with clusterIPs, if the writer gave only clusterIP."""
    if spec.clusterIP and not spec.clusterIPs:
        return replace(spec, clusterIPs=[spec.clusterIP])
    return spec


def _refuse(name: str, errors: list[FieldError]) -> None:
    if errors:
        raise invalid("", "Service", name, errors)
