"""Services that select pods have an Endpoints object too, the older form of EndpointSlices."""

from functools import partial
from typing import Final

from msgspec.structs import replace

from kedge.api.apps_v1.workload import same
from kedge.api.core_v1.endpoints import RESOURCE, Endpoints
from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.service import RESOURCE as SERVICES
from kedge.api.core_v1.service_types import Service
from kedge.api.model import ObjectMeta
from kedge.client.client import Client
from kedge.client.events import WARNING, Recorder
from kedge.client.informer import Key
from kedge.controllers.loop import ControllerLoop, together
from kedge.controllers.namespaces import is_leaving as namespace_is_leaving
from kedge.controllers.pod_state import is_leaving
from kedge.controllers.services.backends import (
    HEADLESS,
    has_backends,
    is_headless,
    seen_of,
    selects,
)
from kedge.controllers.services.subsets import bounded, subsets_of
from kedge.controllers.shared_informers import SharedInformers, key_of
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError

COMPONENT: Final = "endpoint-controller"
MANAGED_BY: Final = "endpoints.kubernetes.io/managed-by"
OVER_CAPACITY: Final = "endpoints.kubernetes.io/over-capacity"
WORKERS: Final = 5


class EndpointsController:
    """Looks at a service whenever it, one of its pods or its endpoints change."""

    def __init__(self, client: Client, shared: SharedInformers, clock: Clock) -> None:
        self._client = client
        self._services = shared.of(SERVICES)
        self._pods = shared.of(PODS)
        self._labelled = self._pods.by_labels()
        self._endpoints = shared.of(RESOURCE)
        self._recorder = Recorder(client, clock, COMPONENT)
        self._bereft: set[Key] = set()
        """Deleted services; their endpoints are deleted too, whatever wrote them."""
        self._loop: ControllerLoop[Key] = ControllerLoop(
            "endpoints", self._reconcile, clock, workers=WORKERS
        )
        self._services.follow(self._service_changed)
        self._pods.follow(self._pod_changed)
        self._endpoints.follow(self._endpoints_changed)

    async def run(self) -> None:
        await together(self._loop.run(), self._recorder.run())

    # Events: which services to reconcile.

    def _service_changed(self, before: Service | None, now: Service | None) -> None:
        service = now or before
        if service is not None:
            if now is None:
                self._bereft.add(key_of(service))
            self._loop.add(key_of(service))

    def _pod_changed(self, before: Pod | None, now: Pod | None) -> None:
        if before is not None and now is not None and seen_of(before) == seen_of(now):
            return
        for pod in (before, now):
            if pod is not None:
                self._tell(pod)

    def _tell(self, pod: Pod) -> None:
        for service in self._services.within(pod.metadata.namespace):
            if has_backends(service) and selects(service, pod.metadata.labels):
                self._add_after_pause(key_of(service))

    def _add_after_pause(self, key: Key) -> None:
        present = self._endpoints.get(key.name, key.namespace)
        subsets = present.subsets if present is not None else ()
        addresses = sum(len(each.addresses) + len(each.notReadyAddresses) for each in subsets)
        self._loop.add_after_pause(key, addresses)

    def _endpoints_changed(self, before: Endpoints | None, now: Endpoints | None) -> None:
        endpoints = now or before
        if endpoints is not None:
            self._add_after_pause(key_of(endpoints))

    # One service.

    async def _reconcile(self, key: Key) -> None:
        service = self._services.get(key.name, key.namespace)
        present = self._endpoints.get(key.name, key.namespace)
        if service is None:
            ours = present is not None and present.metadata.labels.get(MANAGED_BY) == COMPONENT
            if present is not None and (ours or key in self._bereft):
                await self._delete(present)
            self._bereft.discard(key)
        elif has_backends(service) and not is_leaving(service):
            await self._bring_about(service, present)

    async def _bring_about(self, service: Service, present: Endpoints | None) -> None:
        meta = service.metadata
        pods = self._labelled.selected(meta.namespace, partial(selects, service))
        subsets, cut = bounded(subsets_of(service, pods))
        old = present or Endpoints(metadata=ObjectMeta(name=meta.name, namespace=meta.namespace))
        notes = {k: v for k, v in old.metadata.annotations.items() if k != OVER_CAPACITY}
        annotations = notes | ({OVER_CAPACITY: "truncated"} if cut else {})
        wanted = replace(
            old,
            metadata=replace(old.metadata, labels=labels_of(service), annotations=annotations),
            subsets=subsets,
        )
        if present is not None and same(wanted, present):
            return
        await self._write(service, wanted, new=present is None)

    async def _write(self, service: Service, endpoints: Endpoints, *, new: bool) -> None:
        meta = service.metadata
        try:
            write = self._client.create if new else self._client.update
            await self._endpoints.written(await write(RESOURCE, endpoints))
        except StatusError as error:
            if namespace_is_leaving(error):
                return
            # Another client changed or deleted the endpoints; the next attempt sees that.
            if error.reason not in ("Conflict", "NotFound"):
                what = "create" if new else "update"
                about = "endpoint for service" if new else "endpoint"
                message = f"Failed to {what} {about} {meta.namespace}/{meta.name}: {error}"
                reason = f"FailedTo{what.title()}Endpoint"
                self._recorder.record(service, WARNING, reason, message)
            raise

    async def _delete(self, endpoints: Endpoints) -> None:
        meta = endpoints.metadata
        try:
            await self._client.delete(RESOURCE, meta.name, meta.namespace)
        except StatusError as error:
            if error.code != 404:
                raise


def labels_of(service: Service) -> dict[str, str]:
    """The labels of a service's endpoints: its own, and whose work they are."""
    own = {key: value for key, value in service.metadata.labels.items() if key != HEADLESS}
    headless = {HEADLESS: ""} if is_headless(service) else {}
    return {**own, **headless, MANAGED_BY: COMPONENT}
