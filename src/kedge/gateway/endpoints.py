"""Endpoints of Services, from their EndpointSlices."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from kedge.client.informer import Key
from kedge.gateway.objects import SliceConditions, SliceInfo

_SERVICE_NAME: Final = "kubernetes.io/service-name"
Endpoint = tuple[str, int]
"""Address and port."""


MOST_ENDPOINTS: Final = 5000
"""Endpoints of one port that are looked at."""
MOST_CHOICES: Final = 1024
"""Ports of Services whose endpoints are kept."""


def port_numbers(slice: SliceInfo) -> dict[str, int]:
    """Return the numbers of a slice's TCP ports by name."""
    return {
        port.name or "": port.port
        for port in slice.ports or ()
        if port.port and port.protocol in ("TCP", None)
    }


def usable(offers: Iterable[tuple[int, SliceInfo]]) -> list[Endpoint]:
    """Return the endpoints of a port that take new connections: those that are ready or, if there
    are none, those that still serve while they terminate. Each is listed once. An offer is a slice,
    and the number that the port has in it."""
    ready, ending = set(), set()
    for each, conditions in islice(_endpoints(offers), MOST_ENDPOINTS):
        if conditions.ready is not False:
            ready.add(each)
        elif conditions.serving is not False and conditions.terminating:
            ending.add(each)
    return sorted(ready or ending)


def _endpoints(
    offers: Iterable[tuple[int, SliceInfo]],
) -> Iterator[tuple[Endpoint, SliceConditions]]:
    for number, one in offers:
        if one.address_type not in ("IPv4", "IPv6"):
            continue  # names could be those of the machine itself
        for endpoint in one.endpoints or ():
            for address in endpoint.addresses[:1]:
                yield (address, number), endpoint.conditions


class SliceIndex:
    """A Receiver that keeps EndpointSlices by their Service.

    Endpoints of a port are chosen once for each change, not for each request: a Service may have
    thousands of ports and endpoints.
    """

    def __init__(self) -> None:
        self._slices: dict[Key, SliceInfo] = {}
        self._numbers: dict[Key, dict[str, int]] = {}
        self._of_service: dict[Key, set[Key]] = {}
        self._choices: dict[tuple[Key, str], list[Endpoint]] = {}
        self._chosen: dict[Key, set[str]] = {}
        """The ports of each Service among the choices."""

    def usable(self, namespace: str, name: str, port_name: str) -> list[Endpoint]:
        """Return the endpoints of a Service's port that take new connections."""
        service = Key(namespace, name)
        known = self._choices.get((service, port_name))
        if known is None:
            if len(self._choices) >= MOST_CHOICES:
                self._choices.clear()
                self._chosen.clear()
            known = self._choices[service, port_name] = usable(self._offers(service, port_name))
            self._chosen.setdefault(service, set()).add(port_name)
        return known

    def _offers(self, service: Key, port_name: str) -> Iterator[tuple[int, SliceInfo]]:
        for key in self._of_service.get(service, ()):
            number = self._numbers[key].get(port_name)
            if number is not None:
                yield number, self._slices[key]

    def replace(self, objects: Iterable[SliceInfo]) -> None:
        for known in (self._slices, self._numbers, self._of_service, self._choices, self._chosen):
            known.clear()
        for each in objects:
            self.put(each)

    def put(self, obj: SliceInfo) -> None:
        self.remove(obj)
        key, service = obj.metadata.key, _service(obj)
        self._slices[key] = obj
        self._numbers[key] = port_numbers(obj)
        self._of_service.setdefault(service, set()).add(key)
        self._forget_choices(service)

    def remove(self, obj: SliceInfo) -> None:
        key = obj.metadata.key
        before = self._slices.pop(key, None)
        if before is not None:
            del self._numbers[key]
            service = _service(before)
            self._of_service[service].discard(key)
            if not self._of_service[service]:
                del self._of_service[service]
            self._forget_choices(service)

    def _forget_choices(self, service: Key) -> None:
        for port_name in self._chosen.pop(service, ()):
            del self._choices[service, port_name]


def _service(slice: SliceInfo) -> Key:
    return Key(slice.metadata.namespace, slice.metadata.labels.get(_SERVICE_NAME, ""))
