"""LoadBalancerController: gives Services of type LoadBalancer an address of the pool."""

from ipaddress import IPv4Network
from typing import Final

from kedge.api.core_v1.service import RESOURCE
from kedge.api.core_v1.service_types import Service
from kedge.client.client import Client
from kedge.client.events import NORMAL, WARNING, Recorder
from kedge.client.informer import Key
from kedge.controllers.loop import ControllerLoop, together
from kedge.controllers.pod_state import is_leaving
from kedge.controllers.services.load_balancer_pool import (
    PoolError,
    address_of,
    choose_address,
    is_balanced,
)
from kedge.controllers.shared_informers import SharedInformers, key_of
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError

COMPONENT: Final = "service-controller"


class LoadBalancerController:
    """Reconciles a Service when it changes, and those without an address when one becomes free.

    The status of the Services is the only record of addresses. One worker, which waits for each
    of its writes, so that no address is given out twice.
    """

    def __init__(
        self, client: Client, shared: SharedInformers, clock: Clock, pool: IPv4Network
    ) -> None:
        self._client = client
        self._pool = pool
        self._services = shared.of(RESOURCE)
        self._by_address = self._services.by(address_of)
        self._waiting: dict[Key, str] = {}
        """Services that cannot have an address, and why."""
        self._recorder = Recorder(client, clock, COMPONENT)
        self._loop: ControllerLoop[Key] = ControllerLoop("service-lb", self._reconcile, clock)
        self._services.follow(self._changed)

    async def run(self) -> None:
        await together(self._loop.run(), self._recorder.run())

    def _changed(self, before: Service | None, now: Service | None) -> None:
        if now is not None and is_balanced(now):
            self._loop.add(key_of(now))
        elif before is not None and is_balanced(before) and address_of(before):
            self._recorder.record(before, NORMAL, "DeletingLoadBalancer", "Deleting load balancer")
            self._recorder.record(before, NORMAL, "DeletedLoadBalancer", "Deleted load balancer")
        freed = address_of(before) if before is not None else None
        if freed and (now is None or address_of(now) != freed):
            for key in self._waiting:
                self._loop.add(key)

    async def _reconcile(self, key: Key) -> None:
        service = self._services.get(key.name, key.namespace)
        if service is None or is_leaving(service) or not is_balanced(service):
            self._waiting.pop(key, None)
            return
        try:
            address = choose_address(self._pool, service, self._by_address.get)
        except PoolError as error:
            await self._refuse(service, str(error))
            return
        self._waiting.pop(key, None)
        if address != address_of(service):
            await self._give(service, address)

    async def _refuse(self, service: Service, why: str) -> None:
        key = key_of(service)
        if address_of(service):
            await self._write(service, [])
        if self._waiting.get(key) != why:
            message = f"Error syncing load balancer: failed to ensure load balancer: {why}"
            self._recorder.record(service, WARNING, "SyncLoadBalancerFailed", message)
        self._waiting[key] = why

    async def _give(self, service: Service, address: str) -> None:
        self._recorder.record(service, NORMAL, "EnsuringLoadBalancer", "Ensuring load balancer")
        if await self._write(service, [{"ip": address, "ipMode": "VIP"}]):
            self._recorder.record(service, NORMAL, "EnsuredLoadBalancer", "Ensured load balancer")

    async def _write(self, service: Service, ingress: list[dict[str, str]]) -> bool:
        """Write the places of the load balancer; return False if the Service is gone."""
        meta = service.metadata
        # The uid makes the write fail if the Service was deleted and created again.
        patch = {
            "metadata": {"uid": meta.uid},
            "status": {"loadBalancer": {"ingress": ingress or None}},
        }
        try:
            written = await self._client.patch(
                RESOURCE, meta.name, patch, meta.namespace, subresource="status"
            )
        except StatusError as error:
            if error.code in (404, 409):
                return False
            raise
        await self._services.written(written)
        return True
