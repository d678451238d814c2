"""Endpoints of Services, from their EndpointSlices."""

from collections.abc import Iterable, Iterator
from typing import Final

from kedge.client.informer import Key
from kedge.gateway.objects import SliceConditions, SliceInfo

_SERVICE_NAME: Final = "kubernetes.io/service-name"
Endpoint = tuple[str, int]
"""Address and port."""


def usable(slices: Iterable[SliceInfo], port_name: str) -> list[Endpoint]:
    """Return the endpoints of a port that take new connections: those that are ready or, if there
    are none, those that still serve while they terminate. Each is listed once."""
    ready, ending = set(), set()
    for each, conditions in _endpoints(slices, port_name):
        if conditions.ready is not False:
            ready.add(each)
        elif conditions.serving is not False and conditions.terminating:
            ending.add(each)
    return sorted(ready or ending)


def _endpoints(
    slices: Iterable[SliceInfo], port_name: str
) -> Iterator[tuple[Endpoint, SliceConditions]]:
    for one in slices:
        numbers = [
            port.port
            for port in one.ports or ()
            if port.port and (port.name or "") == port_name and port.protocol in ("TCP", None)
        ]
        if one.address_type not in ("IPv4", "IPv6"):
            continue  # names could be those of the machine itself
        for endpoint in one.endpoints or ():
            for number in numbers:
                for address in endpoint.addresses[:1]:
                    yield (address, number), endpoint.conditions


class SliceIndex:
    """A Receiver that keeps EndpointSlices by their Service."""

    def __init__(self) -> None:
        self._slices: dict[Key, SliceInfo] = {}
        self._of_service: dict[Key, set[Key]] = {}

    def of(self, namespace: str, name: str) -> list[SliceInfo]:
        """Return the slices of a Service."""
        keys = self._of_service.get(Key(namespace, name), ())
        return [self._slices[key] for key in keys]

    def replace(self, objects: Iterable[SliceInfo]) -> None:
        self._slices.clear()
        self._of_service.clear()
        for each in objects:
            self.put(each)

    def put(self, obj: SliceInfo) -> None:
        self.remove(obj)
        key = obj.metadata.key
        self._slices[key] = obj
        self._of_service.setdefault(_service(obj), set()).add(key)

    def remove(self, obj: SliceInfo) -> None:
        key = obj.metadata.key
        before = self._slices.pop(key, None)
        if before is not None:
            service = _service(before)
            self._of_service[service].discard(key)
            if not self._of_service[service]:
                del self._of_service[service]


def _service(slice: SliceInfo) -> Key:
    return Key(slice.metadata.namespace, slice.metadata.labels.get(_SERVICE_NAME, ""))
