"""The PodResources service, from which monitoring agents read the allocation of devices."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.resources import is_sidecar
from kedge.deviceplugin import library
from kedge.deviceplugin import messages as m
from kedge.deviceplugin import pod_resources as r
from kedge.machinery.clock import Clock
from kedge.node.devices.grpc_socket import Handlers
from kedge.node.devices.ledger import DeviceLedger

RATE: Final = 100.0
"""Requests per second."""
BURST: Final = 10.0


class PodResourcesService:
    """Serves List, Get and GetAllocatableResources."""

    def __init__(
        self,
        ledger: DeviceLedger,
        pods: Callable[[], Iterable[Pod]],
        claims: Callable[[Pod, Container], Sequence[r.DynamicResource]],
        clock: Clock,
    ) -> None:
        """`claims` returns the resource claims of a container."""
        self._ledger = ledger
        self._pods = pods
        self._claims = claims
        self._clock = clock
        self._tokens = BURST
        self._filled = clock.monotonic()

    def handlers(self) -> Handlers:
        return {
            r.LIST: self._list,
            r.LIST_ALPHA: self._list_alpha,
            r.GET: self._get,
            r.ALLOCATABLE: self._allocatable,
        }

    async def _list(self, request: m.Empty, context: Any) -> r.ListPodResourcesResponse:
        await self._limit(context)
        return r.ListPodResourcesResponse(pod_resources=[self._pod(pod) for pod in self._pods()])

    async def _list_alpha(self, request: m.Empty, context: Any) -> r.ListPodResourcesResponse:
        await self._limit(context)
        found = [self._pod(pod, is_alpha=True) for pod in self._pods()]
        return r.ListPodResourcesResponse(pod_resources=found)

    async def _get(
        self, request: r.GetPodResourcesRequest, context: Any
    ) -> r.GetPodResourcesResponse:
        await self._limit(context)
        name, namespace = request.pod_name, request.pod_namespace
        for pod in self._pods():
            if (pod.metadata.name, pod.metadata.namespace) == (name, namespace):
                return r.GetPodResourcesResponse(pod_resources=self._pod(pod))
        text = f"pod {name} in namespace {namespace} not found"
        await context.abort(library.load().StatusCode.UNKNOWN, text)
        raise AssertionError

    async def _allocatable(self, request: m.Empty, context: Any) -> r.AllocatableResourcesResponse:
        await self._limit(context)
        devices = [
            _device(resource, each, known.places)
            for resource, offer in sorted(self._ledger.offers.items())
            for each, known in sorted(offer.devices.items())
            if known.healthy
        ]
        return r.AllocatableResourcesResponse(devices=devices)

    async def _limit(self, context: Any) -> None:
        now = self._clock.monotonic()
        self._tokens = min(BURST, self._tokens + (now - self._filled) * RATE)
        self._filled = now
        if self._tokens < 1:
            code = library.load().StatusCode.RESOURCE_EXHAUSTED
            await context.abort(code, "rejected by rate limit")
        self._tokens -= 1

    def _pod(self, pod: Pod, *, is_alpha: bool = False) -> r.PodResources:
        return r.PodResources(
            name=pod.metadata.name,
            namespace=pod.metadata.namespace,
            containers=[
                r.ContainerResources(
                    name=container.name,
                    devices=list(self._devices(pod.metadata.uid, container.name, not is_alpha)),
                    dynamic_resources=() if is_alpha else self._claims(pod, container),
                )
                for container in _running(pod)
            ],
        )

    def _devices(self, uid: str, container: str, topology: bool) -> Iterator[r.ContainerDevices]:
        for holding in self._ledger.of_container(uid, container):
            if not topology:
                yield r.ContainerDevices(resource_name=holding.resource, device_ids=holding.ids)
                continue
            for each in holding.ids:
                yield _device(holding.resource, each, holding.places.get(each, ()))


def _running(pod: Pod) -> Iterator[Container]:
    """Return the containers that run: sidecars and main containers."""
    yield from (each for each in pod.spec.initContainers if is_sidecar(each))
    yield from pod.spec.containers


def _device(resource: str, id_: str, places: Iterable[int]) -> r.ContainerDevices:
    nodes = [m.NUMANode(id=place) for place in places]
    topology = m.TopologyInfo(nodes=nodes) if nodes else None
    return r.ContainerDevices(resource_name=resource, device_ids=[id_], topology=topology)
