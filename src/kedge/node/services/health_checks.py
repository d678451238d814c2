"""Answers at the health check node ports of Services: load balancers ask nodes there whether they
have an endpoint, because `externalTrafficPolicy: Local` drops connections on all others."""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from kedge.api.core_v1.service_types import Service
from kedge.api.discovery_v1.endpoint_slice import EndpointSlice
from kedge.client.events import WARNING, Recorder
from kedge.client.informer import Key
from kedge.client.workqueue import WorkQueue
from kedge.machinery.clock import Clock
from kedge.machinery.sockets import SocketMaker
from kedge.node.services.service_ports import NodePlace
from kedge.node.services.service_watch import ServiceWatch
from kedge.web.connection_limits import ConnectionLimits
from kedge.web.limits import ServerLimits
from kedge.web.message import HttpRequest, Response
from kedge.web.server import HttpServer

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 5.0
PORTS: Final = 500
"""Ports of one node; each takes a file descriptor. Further Services are not answered for."""
_CONNECTIONS: Final = ConnectionLimits(total=32, strangers=32, per_tenant=32, reserve=0)
_LIMITS: Final = ServerLimits(body_bytes=1024, bodies_bytes=32 << 10)


class ServiceHealthCheck(NamedTuple):
    """The health check of one Service."""

    namespace: str
    name: str
    port: int
    local_endpoints: int
    """Ready endpoints on this node."""


def health_check(
    service: Service, slices: Iterable[EndpointSlice], place: NodePlace
) -> ServiceHealthCheck | None:
    """Return the health check of a Service; None if it has none."""
    spec, meta = service.spec, service.metadata
    if spec.type != "LoadBalancer" or spec.externalTrafficPolicy != "Local":
        return None
    if not spec.healthCheckNodePort:
        return None
    local = {
        endpoint.addresses[0]
        for each in slices
        for endpoint in each.endpoints
        if endpoint.addresses
        and endpoint.nodeName == place.name
        and endpoint.conditions.ready is not False
    }
    return ServiceHealthCheck(meta.namespace, meta.name, spec.healthCheckNodePort, len(local))


def answer(check: ServiceHealthCheck) -> Response:
    """Return kube-proxy's answer, white space included."""
    body = f"""{{
\t"service": {{
\t\t"namespace": "{check.namespace}",
\t\t"name": "{check.name}"
\t}},
\t"localEndpoints": {check.local_endpoints},
\t"serviceProxyHealthy": true
}}"""
    headers = [
        ("X-Content-Type-Options", "nosniff"),
        ("X-Load-Balancing-Endpoint-Weight", str(check.local_endpoints)),
    ]
    status = 200 if check.local_endpoints else 503
    return Response(status, body.encode(), "application/json", headers)


class _HealthPort:
    """A port that reports the health of one Service."""

    def __init__(self, check: ServiceHealthCheck, clock: Clock) -> None:
        self.check = check
        self.server = HttpServer(self._handle, clock, _LIMITS, connection_limits=_CONNECTIONS)

    def _handle(self, http: HttpRequest) -> Response:
        return answer(self.check)


class ServiceHealthChecks:
    """Listens on the health check node ports of all Services. The owner must `run` it."""

    def __init__(
        self,
        watch: ServiceWatch,
        host: str,
        place: Callable[[], NodePlace],
        recorder: Recorder,
        clock: Clock,
        make: SocketMaker = socket.socket,
    ) -> None:
        """`host` is the node's address, `make` makes the sockets that listen there."""
        self._make = make
        self._watch = watch
        self._host = host
        self._place = place
        self._recorder = recorder
        self._clock = clock
        self._open: dict[Key, tuple[_HealthPort, asyncio.Task[None]]] = {}
        self._failed: set[Key] = set()
        """Services whose port cannot be opened, and an event says so."""
        self._queue: WorkQueue[Key] = WorkQueue(clock)
        watch.listen(self._queue.add)

    async def run(self) -> None:
        """Follow Services until cancelled."""
        await self._watch.synced()
        async with asyncio.TaskGroup() as tasks:
            try:
                while True:
                    await self._work(tasks)
            finally:
                for port, _ in self._open.values():
                    port.server.stop_listening()

    async def _work(self, tasks: asyncio.TaskGroup) -> None:
        key = await self._queue.get()
        try:
            await self._settle(key, tasks)
        except Exception:
            # One bad object must not end the agent: it would end the next one too.
            log.exception("health check skipped service=%s/%s", *key)
        finally:
            self._queue.done(key)
        await self._clock.give_way()

    async def _settle(self, key: Key, tasks: asyncio.TaskGroup) -> None:
        found = self._watch.services.get(key.name, key.namespace)
        slices = self._watch.slices(key)
        check = None if found is None else health_check(found, slices, self._place())
        known = self._open.get(key)
        if known is not None and (check is None or check.port != known[0].check.port):
            del self._open[key]
            known[0].server.stop_listening()
            known[1].cancel()
            known = None
        if known is not None and check is not None:
            known[0].check = check
            return
        if check is None or found is None:
            self._failed.discard(key)
            return
        await self._listen(key, found, check, tasks)

    async def _listen(
        self, key: Key, service: Service, check: ServiceHealthCheck, tasks: asyncio.TaskGroup
    ) -> None:
        port = _HealthPort(check, self._clock)
        try:
            if len(self._open) >= PORTS:
                raise OSError(f"this node answers for {PORTS} Services already")
            await port.server.listen(self._host, check.port, None, self._make)
        except OSError as error:
            if key not in self._failed:
                self._failed.add(key)
                why = f"failed to start healthcheck on port {check.port}: {error.strerror or error}"
                self._recorder.record(service, WARNING, "FailedToStartServiceHealthcheck", why)
            self._queue.add_later(key, RETRY_SECONDS)
            return
        self._failed.discard(key)
        self._open[key] = port, tasks.create_task(port.server.sweep())
