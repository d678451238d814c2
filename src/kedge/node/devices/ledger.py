"""Ledger: which devices there are, and which container holds which. Pure bookkeeping."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from kedge.deviceplugin.messages import DevicePluginOptions

ANYWHERE: Final = -1
"""The part of the machine that a device is in which names none."""


class AllocationError(Exception):
    """Devices cannot be had; the text is upstream's."""


class DeviceAmounts(NamedTuple):
    """What a node reports of one resource."""

    capacity: int
    allocatable: int


class PluginDevice(NamedTuple):
    """A device as its plugin last described it."""

    healthy: bool
    places: tuple[int, ...] = ()
    """Numbers of the parts of the machine that it is close to."""


class DeviceOwner(msgspec.Struct, frozen=True):
    """A container that devices are for."""

    pod: str
    """Uid."""
    container: str
    pod_name: str = ""
    namespace: str = ""


class DeviceAllocation(msgspec.Struct, frozen=True):
    """Devices of one resource that one container holds."""

    owner: DeviceOwner
    resource: str
    ids: tuple[str, ...]
    places: Mapping[str, tuple[int, ...]] = {}
    """By device: the parts of the machine that it is close to."""
    response: bytes = b""
    """What the plugin answered to Allocate: a ContainerAllocateResponse."""


class DeviceReleaseNotice(msgspec.Struct, frozen=True):
    """Devices whose plugin is still to be told that their container is gone."""

    owner: DeviceOwner
    resource: str
    ids: tuple[str, ...]


@dataclass
class DeviceResource:
    """One resource, and the devices of it that there are."""

    options: DevicePluginOptions = field(default_factory=DevicePluginOptions)
    devices: dict[str, PluginDevice] = field(default_factory=dict)
    seen: bool = False
    """Whether a plugin has offered it since this ledger was opened."""


class DeviceLedger:
    """The devices of a node. Every method is immediate; whoever changes it writes it down."""

    def __init__(self) -> None:
        self.offers: dict[str, DeviceResource] = {}
        self.holdings: dict[tuple[str, str, str], DeviceAllocation] = {}
        """By uid of the pod, container and resource."""
        self.farewells: list[DeviceReleaseNotice] = []
        self._promised: dict[str, set[str]] = {}
        """By resource: devices that were chosen and are being allocated."""

    # What plugins say.

    def offered(self, resource: str, options: DevicePluginOptions) -> None:
        """A plugin has registered; its devices follow."""
        offer = self.offers.setdefault(resource, DeviceResource())
        offer.options, offer.seen = options, True

    def listed(self, resource: str, devices: Mapping[str, PluginDevice]) -> set[str]:
        """A plugin's devices are these now; returns the pods whose own have changed."""
        offer = self.offers[resource]
        before, offer.devices = offer.devices, dict(devices)
        changed = {
            each
            for each in before.keys() | devices.keys()
            if _healthy(before.get(each)) != _healthy(devices.get(each))
        }
        return {
            holding.owner.pod
            for holding in self.holdings.values()
            if holding.resource == resource and not changed.isdisjoint(holding.ids)
        }

    def lost(self, resource: str) -> set[str]:
        """The plugin is gone: its devices are there, but nobody vouches for them."""
        devices = self.offers[resource].devices
        return self.listed(
            resource, {each: k._replace(healthy=False) for each, k in devices.items()}
        )

    def given_up(self, resource: str) -> set[str]:
        """The plugin does not come back: there are no such devices, until it does."""
        return self.listed(resource, {})

    # What the node says.

    def amounts(self) -> dict[str, DeviceAmounts]:
        """By resource; one that was ever offered stays, with nothing to give."""
        return {
            resource: DeviceAmounts(
                len(offer.devices), sum(k.healthy for k in offer.devices.values())
            )
            for resource, offer in sorted(self.offers.items())
        }

    def health(self, pod: str) -> Iterator[tuple[str, str, str, bool]]:
        """Container, resource, device of a pod, and whether it is well."""
        for holding in self.of_pod(pod):
            offer = self.offers.get(holding.resource)
            for each in holding.ids:
                healthy = offer is not None and _healthy(offer.devices.get(each))
                yield holding.owner.container, holding.resource, each, healthy

    # What pods take and give.

    def of_pod(self, pod: str) -> list[DeviceAllocation]:
        return [self.holdings[key] for key in sorted(self.holdings) if key[0] == pod]

    def of_container(self, pod: str, container: str) -> list[DeviceAllocation]:
        """In the order of the resources' names."""
        return [held for held in self.of_pod(pod) if held.owner.container == container]

    def pods(self) -> set[str]:
        return {pod for pod, _, _ in self.holdings}

    def missing(self, owner: DeviceOwner, resource: str, number: int) -> int:
        """How many devices a container is still to get. Raises AllocationError for one that
        cannot get any, or that had some which are no good any more."""
        held = self.holdings.get((owner.pod, owner.container, resource))
        if held is not None and len(held.ids) != number:
            raise AllocationError(
                f'pod "{owner.pod}" container "{owner.container}" changed request for resource '
                f'"{resource}" from {len(held.ids)} to {number}'
            )
        offer = self.offers[resource]
        if not offer.seen:
            raise AllocationError(f"cannot allocate unregistered device {resource}")
        healthy = {each for each, known in offer.devices.items() if known.healthy}
        if not healthy:
            raise AllocationError(
                f"no healthy devices present; cannot allocate unhealthy devices {resource}"
            )
        if held is not None and not healthy.issuperset(held.ids):
            raise AllocationError(
                "previously allocated devices are no longer healthy; "
                f"cannot allocate unhealthy devices {resource}"
            )
        return 0 if held is not None else number

    def choice(self, resource: str, number: int, reusable: Set[str]) -> "DeviceChoice":
        """What a container may choose from. Raises AllocationError if that is too little."""
        again = in_order(reusable & self._healthy(resource))[:number]
        free = in_order(self._healthy(resource) - self._taken(resource))
        if len(free) < number - len(again):
            raise AllocationError(
                f"requested number of devices unavailable for {resource}. "
                f"Requested: {number - len(again)}, Available: {len(free)}"
            )
        return DeviceChoice(tuple(again), tuple(free), number)

    def promise(self, resource: str, ids: Iterable[str]) -> None:
        """Nobody else is to choose these, until they are held or the promise is taken back."""
        self._promised.setdefault(resource, set()).update(ids)

    def take_back(self, resource: str, ids: Iterable[str]) -> None:
        self._promised.get(resource, set()).difference_update(ids)

    def hold(self, owner: DeviceOwner, resource: str, ids: Sequence[str], response: bytes) -> None:
        self.take_back(resource, ids)
        devices = self.offers[resource].devices
        self.holdings[owner.pod, owner.container, resource] = DeviceAllocation(
            owner=owner,
            resource=resource,
            ids=tuple(in_order(ids)),
            places={each: devices[each].places for each in ids if each in devices},
            response=response,
        )

    def release(self, pod: str) -> list[DeviceAllocation]:
        """A pod gives back what it held; plugins that want to know are to be told."""
        held = self.of_pod(pod)
        for holding in held:
            owner = holding.owner
            del self.holdings[pod, owner.container, holding.resource]
            offer = self.offers.get(holding.resource)
            if offer is not None and offer.options.release_required:
                self.farewells.append(DeviceReleaseNotice(owner, holding.resource, holding.ids))
        return held

    def said(self, farewell: DeviceReleaseNotice) -> None:
        """The plugin knows."""
        self.farewells.remove(farewell)

    def _healthy(self, resource: str) -> set[str]:
        return {each for each, k in self.offers[resource].devices.items() if k.healthy}

    def _taken(self, resource: str) -> set[str]:
        held = {i for h in self.holdings.values() if h.resource == resource for i in h.ids}
        # A late farewell would undo what was done for the next container.
        parting = {i for f in self.farewells if f.resource == resource for i in f.ids}
        return held | parting | self._promised.get(resource, set())


class DeviceChoice(NamedTuple):
    """What a container may choose from."""

    again: tuple[str, ...]
    """Devices of an earlier container of the pod, which it gets in any case."""
    free: tuple[str, ...]
    number: int
    """How many it gets in all."""

    @property
    def open(self) -> bool:
        """Whether there is anything to choose."""
        return len(self.again) < self.number < len(self.again) + len(self.free)

    def decided(self, preferred: Sequence[str] = ()) -> tuple[str, ...]:
        """What it gets: what it must, what is preferred as far as that can be had, and others."""
        can = dict.fromkeys(self.free)
        wanted = dict.fromkeys([*self.again, *(each for each in preferred if each in can), *can])
        return tuple(list(wanted)[: self.number])


def in_order(ids: Iterable[str]) -> list[str]:
    """As people count: d-2 before d-10."""
    return sorted(ids, key=lambda each: (len(each), each))


def _healthy(known: PluginDevice | None) -> bool:
    return known is not None and known.healthy
