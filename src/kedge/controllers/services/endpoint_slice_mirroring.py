"""Mirrors the Endpoints of services without selector to EndpointSlices."""

import ipaddress
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from kedge.api.apps_v1.workload import same
from kedge.api.core_v1.endpoints import RESOURCE as ENDPOINTS
from kedge.api.core_v1.endpoints import EndpointAddress, Endpoints, EndpointSubset
from kedge.api.core_v1.service import RESOURCE as SERVICES
from kedge.api.core_v1.service_types import Service
from kedge.api.discovery_v1.endpoint_slice import (
    RESOURCE,
    Endpoint,
    EndpointConditions,
    EndpointPort,
    EndpointSlice,
)
from kedge.api.model import ObjectMeta
from kedge.api.resource import enc_hook
from kedge.client.client import Client
from kedge.client.events import WARNING, Recorder
from kedge.client.informer import Key
from kedge.controllers.loop import ControllerLoop, together
from kedge.controllers.namespaces import is_leaving as namespace_is_leaving
from kedge.controllers.pod_control import NAME_LIMIT, owned_by
from kedge.controllers.pod_state import is_leaving
from kedge.controllers.services.slicing import MANAGED_BY, SERVICE_NAME
from kedge.controllers.services.subsets import repacked
from kedge.controllers.shared_informers import SharedInformers, key_of
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError

COMPONENT: Final = "endpoint-slice-mirroring-controller"
CONTROLLER: Final = "endpointslicemirroring-controller.k8s.io"
SKIPPED: Final = "endpointslice.kubernetes.io/skip-mirror"
ELECTION: Final = "control-plane.alpha.kubernetes.io/leader"
UNMIRRORED: Final = (
    "endpoints.kubernetes.io/last-change-trigger-time",
    "kubectl.kubernetes.io/last-applied-configuration",
)
"""Annotations that say something of the original only."""
MOST: Final = 1000
"""Addresses of one subset that are mirrored."""
WORKERS: Final = 5


def mirrored(endpoints: Endpoints) -> list[EndpointSlice]:
    """The slices that say the same, one for each subset and family."""
    return [
        slice_
        for subset in repacked(endpoints.subsets)
        for family in ("IPv4", "IPv6")
        if (slice_ := _slice(endpoints, subset, family)).endpoints
    ]


def _slice(endpoints: Endpoints, subset: EndpointSubset, family: str) -> EndpointSlice:
    meta = endpoints.metadata
    prefix = f"{meta.name}-"
    notes = {key: value for key, value in meta.annotations.items() if key not in UNMIRRORED}
    return EndpointSlice(
        metadata=ObjectMeta(
            generateName=prefix if len(prefix) <= NAME_LIMIT else meta.name,
            namespace=meta.namespace,
            labels={**meta.labels, SERVICE_NAME: meta.name, MANAGED_BY: CONTROLLER},
            annotations=notes,
            ownerReferences=[owned_by(ENDPOINTS, endpoints)],
        ),
        addressType=family,
        endpoints=[
            _endpoint(address, ready)
            for address, ready in _addresses(subset)
            if f"IPv{ipaddress.ip_address(address.ip).version}" == family
        ],
        ports=[
            EndpointPort(
                name=port.name,
                port=port.port,
                protocol=port.protocol,
                appProtocol=port.appProtocol,
            )
            for port in subset.ports
        ],
    )


def _addresses(subset: EndpointSubset) -> Iterable[tuple[EndpointAddress, bool]]:
    ready = [(address, True) for address in subset.addresses]
    waiting = [(address, False) for address in subset.notReadyAddresses]
    return (ready + waiting)[:MOST]


def _endpoint(address: EndpointAddress, ready: bool) -> Endpoint:
    return Endpoint(
        addresses=[str(ipaddress.ip_address(address.ip))],
        conditions=EndpointConditions(ready=ready),
        hostname=address.hostname or None,
        nodeName=address.nodeName,
        targetRef=address.targetRef,
    )


def left_out(endpoints: Endpoints) -> int:
    """How many addresses are too many to be mirrored."""
    sizes = [len(each.addresses) + len(each.notReadyAddresses) for each in endpoints.subsets]
    return sum(max(size - MOST, 0) for size in sizes)


def is_mirrored(endpoints: Endpoints, service: Service | None) -> bool:
    meta = endpoints.metadata
    if service is None or service.spec.selector or is_leaving(endpoints):
        return False
    return meta.labels.get(SKIPPED) != "true" and ELECTION not in meta.annotations


class EndpointSliceMirroringController:
    """Looks at Endpoints whenever they, their service or one of their slices changes."""

    def __init__(self, client: Client, shared: SharedInformers, clock: Clock) -> None:
        self._client = client
        self._services = shared.of(SERVICES)
        self._endpoints = shared.of(ENDPOINTS)
        self._slices = shared.of(RESOURCE)
        self._of_endpoints = self._slices.by(_mirror_of)
        self._recorder = Recorder(client, clock, COMPONENT)
        self._loop: ControllerLoop[Key] = ControllerLoop(
            "mirroring", self._reconcile, clock, workers=WORKERS
        )
        self._services.follow(self._service_changed)
        self._endpoints.follow(self._endpoints_changed)
        self._slices.follow(self._slice_changed)

    async def run(self) -> None:
        await together(self._loop.run(), self._recorder.run())

    def _service_changed(self, before: Service | None, now: Service | None) -> None:
        # Most services have a selector, and their Endpoints are not mirrored.
        for service in (before, now):
            if service is not None and not service.spec.selector:
                self._loop.add(key_of(service))

    def _endpoints_changed(self, before: Endpoints | None, now: Endpoints | None) -> None:
        endpoints = now or before
        if endpoints is not None:
            self._loop.add(key_of(endpoints))

    def _slice_changed(self, before: EndpointSlice | None, now: EndpointSlice | None) -> None:
        for slice_ in (before, now):
            if slice_ is not None and (key := _mirror_of(slice_)) is not None:
                self._loop.add(key)

    async def _reconcile(self, key: Key) -> None:
        endpoints = self._endpoints.get(key.name, key.namespace)
        service = self._services.get(key.name, key.namespace)
        wanted: Sequence[EndpointSlice] = ()
        if endpoints is not None and is_mirrored(endpoints, service):
            wanted = mirrored(endpoints)
            if left := left_out(endpoints):
                message = (
                    f"A max of {MOST} addresses can be mirrored to EndpointSlices per Endpoints "
                    f"subset. {left} addresses were skipped"
                )
                self._recorder.record(endpoints, WARNING, "TooManyAddressesToMirror", message)
        present = [each for each in self._of_endpoints.get(key) if not is_leaving(each)]
        try:
            await self._bring_about(list(wanted), present)
        except StatusError as error:
            if not namespace_is_leaving(error):
                raise

    async def _bring_about(self, wanted: list[EndpointSlice], present: list[EndpointSlice]) -> None:
        """Change the slices there are into those that are wanted, in place where it can be done."""
        missing, reusable = _compared(wanted, present)
        for new in missing:
            if not reusable.get(new.addressType):
                await self._slices.written(await self._client.create(RESOURCE, new))
                continue
            old = reusable[new.addressType].popleft()
            changed = replace(new, metadata=_meta(old.metadata, new.metadata))
            await self._slices.written(await self._client.update(RESOURCE, changed))
        for slices in reusable.values():
            for slice_ in slices:
                await self._delete(slice_)

    async def _delete(self, slice_: EndpointSlice) -> None:
        meta = slice_.metadata
        try:
            await self._client.delete(RESOURCE, meta.name, meta.namespace)
        except StatusError as error:
            if error.code != 404:
                raise
        await self._slices.left(slice_)


def _compared(
    wanted: Iterable[EndpointSlice], present: Iterable[EndpointSlice]
) -> tuple[list[EndpointSlice], dict[str, deque[EndpointSlice]]]:
    """Return the missing slices, and the existing ones, by address family, that can be reused.

    Endpoints may have thousands of subsets, so only slices with equal content are compared.
    """
    by_content: dict[bytes, list[EndpointSlice]] = {}
    for each in wanted:
        by_content.setdefault(_content(each), []).append(each)
    reusable: dict[str, deque[EndpointSlice]] = {}
    for slice_ in present:
        alike = by_content.get(_content(slice_), [])
        if alike and _says_the_same(alike[0], slice_):
            alike.pop(0)
        else:
            reusable.setdefault(slice_.addressType, deque()).append(slice_)
    return [each for some in by_content.values() for each in some], reusable


def _content(slice_: EndpointSlice) -> bytes:
    about = slice_.addressType, slice_.ports, slice_.endpoints
    return msgspec.json.encode(about, enc_hook=enc_hook)


def _says_the_same(new: EndpointSlice, old: EndpointSlice) -> bool:
    return same(replace(new, metadata=_meta(old.metadata, new.metadata)), old)


def _meta(old: ObjectMeta, new: ObjectMeta) -> ObjectMeta:
    return replace(
        old,
        labels=new.labels,
        annotations=new.annotations,
        ownerReferences=new.ownerReferences,
    )


def _mirror_of(slice_: EndpointSlice) -> Key | None:
    """Return the Endpoints that a slice mirrors; None if another controller manages it."""
    labels = slice_.metadata.labels
    if labels.get(MANAGED_BY) != CONTROLLER or not labels.get(SERVICE_NAME):
        return None
    return Key(slice_.metadata.namespace, labels[SERVICE_NAME])
