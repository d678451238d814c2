"""ServiceCidrController: keeps ServiceCIDRs ready, and deletes them once no Service needs them."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from msgspec.structs import replace

from kedge.api.builtin.content import listed
from kedge.api.builtin.resources import RESOURCES
from kedge.api.builtin.service_networks import (
    ALLOCATOR,
    FINALIZER,
    MANAGED_BY_LABEL,
    READY,
    READY_MESSAGE,
    TERMINATING,
    TERMINATING_MESSAGE,
    IpNetwork,
    is_allocatable,
    networks,
)
from kedge.api.model import Document
from kedge.api.resource import Resource
from kedge.client.client import Client
from kedge.controllers.loop import ControllerLoop
from kedge.controllers.pod_state import is_leaving
from kedge.controllers.shared_informers import SharedInformers
from kedge.machinery.clock import Clock
from kedge.machinery.durations import format_time, parse_time
from kedge.machinery.errors import StatusError

DELETION_GRACE_SECONDS: Final = 10.0
"""Seconds from the deletion to its end: every allocator must know of it by then."""


def _kind(name: str) -> Resource[Document]:
    return next(each for each in RESOURCES if each.kind == name)


SERVICE_CIDRS: Final = _kind("ServiceCIDR")
IP_ADDRESSES: Final = _kind("IPAddress")


class ServiceCidrController:
    """Reconciles a ServiceCIDR when it changes, and one that is being deleted whenever another
    ServiceCIDR or an address of it changes."""

    def __init__(self, client: Client, shared: SharedInformers, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._cidrs = shared.of(SERVICE_CIDRS)
        self._addresses = shared.of(IP_ADDRESSES)
        self._loop: ControllerLoop[str] = ControllerLoop("service-cidr", self._reconcile, clock)
        self._cidrs.follow(self._cidr_changed)
        self._addresses.follow(self._address_changed)

    async def run(self) -> None:
        await self._loop.run()

    def _cidr_changed(self, before: Document | None, now: Document | None) -> None:
        if now is not None:
            self._loop.add(now.metadata.name)
        self._look_at_leaving()

    def _address_changed(self, before: Document | None, now: Document | None) -> None:
        if before is None or now is None:
            self._look_at_leaving()

    def _look_at_leaving(self) -> None:
        for cidr in self._cidrs:
            if is_leaving(cidr):
                self._loop.add(cidr.metadata.name)

    async def _reconcile(self, name: str) -> None:
        cidr = self._cidrs.get(name)
        try:
            if cidr is not None and is_leaving(cidr):
                await self._let_go(cidr)
            elif cidr is not None:
                await self._keep(cidr)
        except StatusError as error:
            if error.code != 404:
                raise

    async def _keep(self, cidr: Document) -> None:
        finalizers = cidr.metadata.finalizers
        if FINALIZER not in finalizers:
            cidr = await self._set_finalizers(cidr, [*finalizers, FINALIZER])
        await self._report(cidr, {"status": "True", "reason": "", "message": READY_MESSAGE})

    async def _let_go(self, cidr: Document) -> None:
        if is_needed(cidr, self._cidrs, self._addresses):
            why = {"status": "False", "reason": TERMINATING, "message": TERMINATING_MESSAGE}
            await self._report(cidr, why)
            return
        since = parse_time(cidr.metadata.deletionTimestamp)
        left = DELETION_GRACE_SECONDS - (self._clock.now() - since).total_seconds()
        if left > 0:
            self._loop.add_later(cidr.metadata.name, left)
        elif FINALIZER in cidr.metadata.finalizers:
            kept = [each for each in cidr.metadata.finalizers if each != FINALIZER]
            await self._set_finalizers(cidr, kept)

    async def _set_finalizers(self, cidr: Document, finalizers: list[str]) -> Document:
        changed = replace(cidr, metadata=replace(cidr.metadata, finalizers=finalizers))
        return await self._client.update(SERVICE_CIDRS, changed)

    async def _report(self, cidr: Document, ready: dict[str, str]) -> None:
        """Write the condition Ready, unless it is the same already."""
        found = listed(cidr.content, "status.conditions")
        if any(_says(condition, ready) for condition in found):
            return
        condition = {"type": READY, **ready, "lastTransitionTime": format_time(self._clock.now())}
        others = [each for each in found if each.get("type") != READY]
        patch = {"status": {"conditions": [*others, condition]}}
        await self._client.patch(SERVICE_CIDRS, cidr.metadata.name, patch, subresource="status")


def _says(condition: dict[str, Any], ready: dict[str, str]) -> bool:
    same = all(condition.get(name, "") == value for name, value in ready.items())
    return bool(condition.get("type") == READY and same)


def is_needed(cidr: Document, cidrs: Iterable[Document], addresses: Iterable[Document]) -> bool:
    """Return whether a Service would be left with an address outside of every ServiceCIDR."""
    others = [
        network
        for each in cidrs
        if each.metadata.name != cidr.metadata.name
        for network in networks(each.content)
    ]
    own = list(networks(cidr.content))
    if all(any(_holds(other, network) for other in others) for network in own):
        return False
    return any(
        _is_in(own, address) and not _is_in(others, address) for address in _allocated(addresses)
    )


def _holds(outer: IpNetwork, inner: IpNetwork) -> bool:
    is_within = outer.prefixlen <= inner.prefixlen and outer.overlaps(inner)
    return outer.version == inner.version and is_within


def _is_in(ranges: Iterable[IpNetwork], address: str) -> bool:
    return any(is_allocatable(network, address) for network in ranges)


def _allocated(addresses: Iterable[Document]) -> Iterator[str]:
    for each in addresses:
        if each.metadata.labels.get(MANAGED_BY_LABEL) == ALLOCATOR:
            yield each.metadata.name
