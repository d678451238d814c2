"""Service addresses and node ports: each given to one service only."""

import ipaddress
from collections.abc import Collection, Iterator
from typing import Any

from msgspec.structs import replace

from kedge.api.core_v1.service import RESOURCE
from kedge.api.core_v1.service_types import Service, ServicePort
from kedge.api.model import Object
from kedge.apiserver.admission.chain import Attempt
from kedge.apiserver.request import dry_run
from kedge.apiserver.watchcache import Change, ResourceCache
from kedge.machinery.errors import FieldError, invalid

RANGE = ipaddress.IPv4Network("10.96.0.0/16")
NODE_PORTS = range(30000, 32768)
API_SERVICE_ADDRESS = "10.96.0.1"
DNS_SERVICE_ADDRESS = "10.96.0.10"


class AddressBook:
    """Knows which addresses and ports are taken, and gives new services theirs.

    It stands in the admission chain because that is where an object is last changed, but it is
    part of what a Service is and cannot be turned off.
    """

    name = "ServiceAddresses"

    def __init__(self, cache: ResourceCache) -> None:
        self._owners: dict[str | int, str] = {}
        """The key of the stored service that owns an address or node port."""
        self._promised: dict[str | int, str] = {}
        """The same for services whose write has not finished."""
        self._next = 2
        for item in cache.values():
            self._note(item.document(), item.key)
        cache.listeners.add(self._follow)

    def _follow(self, change: Change | None) -> None:
        if change is None:
            return
        if change.previous is not None:
            for taken in _taken(change.previous.document()):
                self._owners.pop(taken, None)
        self._release(change.item.key)
        if change.type != "DELETED":
            self._note(change.item.document(), change.item.key)

    def _note(self, service: dict[str, Any], key: str) -> None:
        for taken in _taken(service):
            self._owners[taken] = key

    async def mutate(self, attempt: Attempt) -> Object | None:
        service = attempt.object
        if not isinstance(service, Service) or attempt.operation not in ("CREATE", "UPDATE"):
            return service
        key = RESOURCE.key(service.metadata.namespace, service.metadata.name)
        old = attempt.old if isinstance(attempt.old, Service) else None
        return self._with_ports(self._with_address(service, old, key), old, key)

    async def validate(self, attempt: Attempt) -> None:
        """Promise what was chosen, now that nothing else stands in the way of storing it."""
        service = attempt.object
        if not isinstance(service, Service) or dry_run(attempt.request, "CreateOptions"):
            return
        key = RESOURCE.key(service.metadata.namespace, service.metadata.name)
        self._release(key)
        for taken in _taken(RESOURCE.to_document(service)):
            self._promised[taken] = key

    def _release(self, key: str) -> None:
        for taken in [taken for taken, owner in self._promised.items() if owner == key]:
            del self._promised[taken]

    def _owner(self, taken: str | int) -> str | None:
        return self._owners.get(taken) or self._promised.get(taken)

    def _with_address(self, service: Service, old: Service | None, key: str) -> Service:
        spec = service.spec
        if spec.type == "ExternalName":
            return service
        address = spec.clusterIP or (old.spec.clusterIP if old is not None else "")
        if not address:
            address = self._free_address()
        elif address != "None" and (fault := self._fault(address, key)):
            error = FieldError.invalid("spec.clusterIPs", [address], fault)
            raise invalid("", "Service", service.metadata.name, [error])
        addresses = spec.clusterIPs or (address,)
        return replace(service, spec=replace(spec, clusterIP=address, clusterIPs=addresses))

    def _fault(self, address: str, key: str) -> str:
        if (self._owner(address) or key) != key:
            return f"failed to allocate IP {address}: provided IP is already allocated"
        try:
            valid = ipaddress.ip_address(address) in RANGE
        except ValueError:
            return ""  # not an address at all: validation will say so
        if not valid:
            return (
                f"failed to allocate IP {address}: the provided IP ({address}) is not in the "
                f"valid range. The range of valid IPs is {RANGE}"
            )
        return ""

    def _free_address(self) -> str:
        for _ in range(RANGE.num_addresses - 3):
            address = str(RANGE[self._next])
            self._next = self._next + 1 if self._next < RANGE.num_addresses - 2 else 2
            if self._owner(address) is None:
                return address
        error = FieldError.invalid("spec.clusterIPs", [], "failed to allocate an IP: range is full")
        raise invalid("", "Service", "", [error])

    def _with_ports(self, service: Service, old: Service | None, key: str) -> Service:
        if service.spec.type not in ("NodePort", "LoadBalancer"):
            return service
        known = {(p.name, p.port): p.nodePort for p in old.spec.ports} if old is not None else {}
        ports: list[ServicePort] = []
        for i, port in enumerate(service.spec.ports):
            number = port.nodePort or known.get((port.name, port.port), 0)
            number = number or self._free_port([chosen.nodePort for chosen in ports])
            if fault := self._port_fault(number, key):
                error = FieldError.invalid(f"spec.ports[{i}].nodePort", number, fault)
                raise invalid("", "Service", service.metadata.name, [error])
            ports.append(replace(port, nodePort=number))
        return replace(service, spec=replace(service.spec, ports=ports))

    def _port_fault(self, number: int, key: str) -> str:
        if number not in NODE_PORTS:
            valid = f"{NODE_PORTS.start}-{NODE_PORTS.stop - 1}"
            return f"provided port is not in the valid range. The range of valid ports is {valid}"
        taken = (self._owner(number) or key) != key
        return "provided port is already allocated" if taken else ""

    def _free_port(self, chosen: Collection[int]) -> int:
        for number in NODE_PORTS:
            if self._owner(number) is None and number not in chosen:
                return number
        error = FieldError.invalid("spec.ports", [], "failed to allocate a nodePort: range is full")
        raise invalid("", "Service", "", [error])


def _taken(service: dict[str, Any]) -> Iterator[str | int]:
    spec = service.get("spec") or {}
    for address in spec.get("clusterIPs") or ():
        if address != "None":
            yield address
    for port in spec.get("ports") or ():
        if port.get("nodePort"):
            yield port["nodePort"]
