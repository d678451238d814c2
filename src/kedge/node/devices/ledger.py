"""The device ledger: the devices of the node and their allocation to containers. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Final, NamedTuple

import msgspec

from kedge.deviceplugin.messages import DevicePluginOptions

ANYWHERE: Final = -1
"""The NUMA node of a device that names none."""


class AllocationError(Exception):
    """Devices cannot be allocated; the text is the kubelet's."""


class DeviceAmounts(NamedTuple):
    """The amounts of one resource in the node's status."""

    capacity: int
    allocatable: int


class PluginDevice(NamedTuple):
    """A device as its plugin last listed it."""

    healthy: bool
    places: tuple[int, ...] = ()
    """The NUMA nodes of the device."""


class DeviceOwner(msgspec.Struct, frozen=True):
    """The container that devices are allocated to."""

    pod: str
    """The pod's uid."""
    container: str
    pod_name: str = ""
    namespace: str = ""


class DeviceAllocation(msgspec.Struct, frozen=True):
    """The devices of one resource that are allocated to one container."""

    owner: DeviceOwner
    resource: str
    ids: tuple[str, ...]
    places: Mapping[str, tuple[int, ...]] = {}
    """By device: its NUMA nodes."""
    response: bytes = b""
    """The plugin's response to Allocate: a ContainerAllocateResponse."""


class DeviceReleaseNotice(msgspec.Struct, frozen=True):
    """Released devices whose plugin has yet to be notified."""

    owner: DeviceOwner
    resource: str
    ids: tuple[str, ...]


class DeviceResource(msgspec.Struct):
    """One resource and its devices."""

    options: DevicePluginOptions = msgspec.field(default_factory=DevicePluginOptions)
    devices: dict[str, PluginDevice] = msgspec.field(default_factory=dict)
    seen: bool = False
    """Whether a plugin has registered the resource since the agent started."""


class DeviceLedger:
    """The devices of a node. No method waits; the caller stores the checkpoint after a change."""

    def __init__(self) -> None:
        self.offers: dict[str, DeviceResource] = {}
        self.holdings: dict[tuple[str, str, str], DeviceAllocation] = {}
        """By pod uid, container and resource."""
        self.releases: list[DeviceReleaseNotice] = []
        self._reserved: dict[str, set[str]] = {}
        """By resource: devices that are chosen and whose allocation is in progress."""

    # Plugins.

    def register(self, resource: str, options: DevicePluginOptions) -> None:
        """Record that a plugin has registered; its devices follow."""
        offer = self.offers.setdefault(resource, DeviceResource())
        offer.options, offer.seen = options, True

    def set_devices(self, resource: str, devices: Mapping[str, PluginDevice]) -> set[str]:
        """Set the devices of a plugin; return the pods whose devices have changed."""
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

    def mark_lost(self, resource: str) -> set[str]:
        """Mark all devices of a lost plugin as unhealthy."""
        devices = self.offers[resource].devices
        return self.set_devices(
            resource, {each: k._replace(healthy=False) for each, k in devices.items()}
        )

    def remove_devices(self, resource: str) -> set[str]:
        """Remove the devices of a plugin that does not register again."""
        return self.set_devices(resource, {})

    # The status of the node.

    def amounts(self) -> dict[str, DeviceAmounts]:
        """Return the amounts by resource; one that was ever registered stays, with zero devices.

        Devices whose plugin has yet to acknowledge their release are not allocatable: a pod that
        the scheduler binds for them would be refused.
        """
        return {
            resource: DeviceAmounts(
                len(offer.devices), len(self._healthy(resource) - self._parting(resource))
            )
            for resource, offer in sorted(self.offers.items())
        }

    def health(self, pod: str) -> Iterator[tuple[str, str, str, bool]]:
        """Yield container, resource, device and health of a pod's devices."""
        for holding in self.of_pod(pod):
            offer = self.offers.get(holding.resource)
            for each in holding.ids:
                healthy = offer is not None and _healthy(offer.devices.get(each))
                yield holding.owner.container, holding.resource, each, healthy

    # Allocation.

    def of_pod(self, pod: str) -> list[DeviceAllocation]:
        return [self.holdings[key] for key in sorted(self.holdings) if key[0] == pod]

    def of_container(self, pod: str, container: str) -> list[DeviceAllocation]:
        """Return the allocations of a container in the order of the resources' names."""
        return [held for held in self.of_pod(pod) if held.owner.container == container]

    def pods(self) -> set[str]:
        return {pod for pod, _, _ in self.holdings}

    def missing(self, owner: DeviceOwner, resource: str, number: int) -> int:
        """Return the number of devices that a container still needs. Raises AllocationError if it
        cannot get them, or if its devices are unhealthy."""
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
        """Return the devices that a container may get. Raises AllocationError if they are too
        few."""
        again = in_order(reusable & self._healthy(resource))[:number]
        free = in_order(self._healthy(resource) - self._taken(resource))
        if len(free) < number - len(again):
            raise AllocationError(
                f"requested number of devices unavailable for {resource}. "
                f"Requested: {number - len(again)}, Available: {len(free)}"
            )
        return DeviceChoice(tuple(again), tuple(free), number)

    def reserve(self, resource: str, ids: Iterable[str]) -> None:
        """Reserve devices until they are allocated or the reservation is cancelled."""
        self._reserved.setdefault(resource, set()).update(ids)

    def cancel_reservation(self, resource: str, ids: Iterable[str]) -> None:
        self._reserved.get(resource, set()).difference_update(ids)

    def hold(self, owner: DeviceOwner, resource: str, ids: Sequence[str], response: bytes) -> None:
        self.cancel_reservation(resource, ids)
        devices = self.offers[resource].devices
        self.holdings[owner.pod, owner.container, resource] = DeviceAllocation(
            owner=owner,
            resource=resource,
            ids=tuple(in_order(ids)),
            places={each: devices[each].places for each in ids if each in devices},
            response=response,
        )

    def release(self, pod: str) -> list[DeviceAllocation]:
        """Release the devices of a pod; the plugins that want it are to be notified."""
        held = self.of_pod(pod)
        for holding in held:
            owner = holding.owner
            del self.holdings[pod, owner.container, holding.resource]
            offer = self.offers.get(holding.resource)
            if offer is not None and offer.options.release_required:
                self.releases.append(DeviceReleaseNotice(owner, holding.resource, holding.ids))
        return held

    def notified(self, farewell: DeviceReleaseNotice) -> None:
        """Record that the plugin has been notified."""
        self.releases.remove(farewell)

    def _healthy(self, resource: str) -> set[str]:
        return {each for each, k in self.offers[resource].devices.items() if k.healthy}

    def _taken(self, resource: str) -> set[str]:
        held = {i for h in self.holdings.values() if h.resource == resource for i in h.ids}
        # A late notice would undo the preparation for the next container.
        return held | self._parting(resource) | self._reserved.get(resource, set())

    def _parting(self, resource: str) -> set[str]:
        return {i for f in self.releases if f.resource == resource for i in f.ids}


class DeviceChoice(NamedTuple):
    """The devices that a container may get."""

    again: tuple[str, ...]
    """Devices of an earlier container of the pod, which it gets in any case."""
    free: tuple[str, ...]
    number: int
    """The number of devices that it gets in total."""

    @property
    def open(self) -> bool:
        """Whether the plugin has a choice."""
        return len(self.again) < self.number < len(self.again) + len(self.free)

    def decided(self, preferred: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the devices of the container: the mandatory ones, the preferred ones if available,
        and others."""
        can = dict.fromkeys(self.free)
        wanted = dict.fromkeys([*self.again, *(each for each in preferred if each in can), *can])
        return tuple(list(wanted)[: self.number])


def in_order(ids: Iterable[str]) -> list[str]:
    """Return a key for natural order: d-2 before d-10."""
    return sorted(ids, key=lambda each: (len(each), each))


def _healthy(known: PluginDevice | None) -> bool:
    return known is not None and known.healthy
