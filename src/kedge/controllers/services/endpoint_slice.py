"""Services that select pods have EndpointSlices which say where these are."""

from functools import partial
from typing import Final

from kedge.api.core_v1.node import RESOURCE as NODES
from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.service import RESOURCE as SERVICES
from kedge.api.core_v1.service_types import Service
from kedge.api.discovery_v1.endpoint_slice import RESOURCE, EndpointSlice
from kedge.client.client import Client
from kedge.client.events import WARNING, Recorder
from kedge.client.informer import Key
from kedge.controllers.loop import ControllerLoop, together
from kedge.controllers.namespaces import is_leaving as namespace_is_leaving
from kedge.controllers.pod_state import is_leaving, node_of
from kedge.controllers.services.backends import families, has_backends, seen_of, selects
from kedge.controllers.services.slicing import (
    CONTROLLER,
    MANAGED_BY,
    MOST,
    SERVICE_NAME,
    SlicePlan,
    endpoints_by_ports,
    plan,
)
from kedge.controllers.shared_informers import SharedInformers, key_of
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError

COMPONENT: Final = "endpoint-slice-controller"
WORKERS: Final = 5


class EndpointSliceController:
    """Looks at a service whenever it, one of its pods or one of its slices changes."""

    def __init__(self, client: Client, shared: SharedInformers, clock: Clock) -> None:
        self._client = client
        self._services = shared.of(SERVICES)
        self._pods = shared.of(PODS)
        self._labelled = self._pods.by_labels()
        self._nodes = shared.of(NODES)
        self._slices = shared.of(RESOURCE)
        self._of_service = self._slices.by(_service_of)
        self._on_node = self._pods.by(node_of)
        self._recorder = Recorder(client, clock, COMPONENT)
        self._loop: ControllerLoop[Key] = ControllerLoop(
            "endpoint-slice", self._reconcile, clock, workers=WORKERS
        )
        self._services.follow(self._service_changed)
        self._pods.follow(self._pod_changed)
        self._slices.follow(self._slice_changed)
        self._nodes.follow(self._node_changed)

    async def run(self) -> None:
        await together(self._loop.run(), self._recorder.run())

    # Events: which services to reconcile.

    def _service_changed(self, before: Service | None, now: Service | None) -> None:
        if now is not None and has_backends(now):
            self._loop.add(key_of(now))

    def _pod_changed(self, before: Pod | None, now: Pod | None) -> None:
        if before is not None and now is not None and seen_of(before) == seen_of(now):
            return
        for pod in (before, now):
            if pod is not None:
                self._tell(pod)

    def _tell(self, pod: Pod) -> None:
        for service in self._services.within(pod.metadata.namespace):
            if has_backends(service) and selects(service, pod.metadata.labels):
                key = key_of(service)
                self._loop.add_after_pause(key, self._endpoints_at_most(key))

    def _endpoints_at_most(self, key: Key) -> int:
        """How many pods the slices of a service stand for, roughly: the last one may be new."""
        return MOST * max(self._of_service.count(key) - 1, 0)

    def _slice_changed(self, before: EndpointSlice | None, now: EndpointSlice | None) -> None:
        for slice_ in (before, now):
            if slice_ is not None and (key := _service_of(slice_)) is not None:
                self._loop.add_after_pause(key, self._endpoints_at_most(key))

    def _node_changed(self, before: Node | None, now: Node | None) -> None:
        """A node that comes or moves to another zone matters to who is reached there."""
        if before and now and before.metadata.labels == now.metadata.labels:
            return
        node = now or before
        if node is not None:
            for pod in self._on_node.get(node.metadata.name):
                self._tell(pod)

    # One service.

    async def _reconcile(self, key: Key) -> None:
        service = self._services.get(key.name, key.namespace)
        if service is None or is_leaving(service) or not has_backends(service):
            return
        try:
            problems = await self._bring_about(service)
        except StatusError as error:
            if namespace_is_leaving(error):
                return
            self._complain(service, error)
            raise
        if problems:
            self._complain(service, "; ".join(problems))

    def _complain(self, service: Service, why: object) -> None:
        meta = service.metadata
        message = f"Error updating Endpoint Slices for Service {meta.namespace}/{meta.name}: {why}"
        self._recorder.record(service, WARNING, "FailedToUpdateEndpointSlices", message)

    async def _bring_about(self, service: Service) -> list[str]:
        """Make the slices what they should be; says what is wrong with pods that were left out."""
        pods = self._labelled.selected(service.metadata.namespace, partial(selects, service))
        nodes = {
            pod.spec.nodeName: node
            for pod in pods
            if (node := self._nodes.get(pod.spec.nodeName)) is not None
        }
        present = [each for each in self._of_service.get(key_of(service)) if not is_leaving(each)]
        problems: list[str] = []
        for family in (served := families(service)):
            groups, found = endpoints_by_ports(service, pods, nodes, family)
            problems += found
            own = [each for each in present if each.addressType == family]
            await self._do(plan(service, family, groups, own))
        foreign = [each for each in present if each.addressType not in served]
        await self._do(SlicePlan(delete=foreign))
        return problems

    async def _do(self, plan: SlicePlan) -> None:
        for slice_ in plan.create:
            await self._slices.written(await self._client.create(RESOURCE, slice_))
        for slice_ in plan.update:
            await self._slices.written(await self._client.update(RESOURCE, slice_))
        for slice_ in plan.delete:
            await self._delete(slice_)

    async def _delete(self, slice_: EndpointSlice) -> None:
        meta = slice_.metadata
        try:
            await self._client.delete(RESOURCE, meta.name, meta.namespace)
        except StatusError as error:
            if error.code != 404:
                raise
        await self._slices.left(slice_)


def _service_of(slice_: EndpointSlice) -> Key | None:
    """Return the service of the slice; None if another controller manages it."""
    labels = slice_.metadata.labels
    if labels.get(MANAGED_BY) != CONTROLLER or not labels.get(SERVICE_NAME):
        return None
    return Key(slice_.metadata.namespace, labels[SERVICE_NAME])
