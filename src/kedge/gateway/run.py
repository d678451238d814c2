"""Assembles the gateway of a cluster and runs it."""

import asyncio
import ssl
from contextlib import suppress
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, Final

from kedge.api.builtin.resources import NETWORKING, RESOURCES
from kedge.api.core_v1 import secret, service
from kedge.api.discovery_v1 import endpoint_slice
from kedge.api.model import Document, ObjectMeta
from kedge.api.resource import Resource
from kedge.client.client import Client
from kedge.client.informer import Cache, Informer
from kedge.client.view import sketches
from kedge.gateway import listening
from kedge.gateway.certificates import Certificates
from kedge.gateway.endpoints import SliceIndex
from kedge.gateway.gateway import LIMITS, Gateway
from kedge.gateway.ingress_routes import (
    CLASS,
    CONTROLLER,
    DEFAULT_CLASS,
    IngressTable,
    is_served,
    served_classes,
)
from kedge.gateway.ingress_status import IngressStatusWriter, addresses
from kedge.gateway.listening import GatewayRecord, PortUnavailable
from kedge.gateway.objects import (
    IngressClassInfo,
    IngressInfo,
    SecretInfo,
    ServiceInfo,
    SliceInfo,
)
from kedge.gateway.routing import Routing
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.settings.published_port import HTTPS, PublishedPort
from kedge.web.cluster_network import MACHINE, ClusterNetwork
from kedge.web.connection_limits import ConnectionLimits
from kedge.web.server import HttpServer

_CONNECTIONS: Final = ConnectionLimits(total=2048, strangers=512, per_tenant=1024, reserve=0)
_TLS_SECRETS: Final = "type=kubernetes.io/tls"
_SETTLE_SECONDS: Final = 0.05
"""Changes of Ingresses within this time are applied together."""


def _resource(plural: str) -> Resource[Any]:
    found = (each for each in RESOURCES if (each.group, each.plural) == (NETWORKING, plural))
    return next(found)


INGRESSES: Final = _resource("ingresses")
CLASSES: Final = _resource("ingressclasses")


class RunningGateway:
    """Everything that the gateway of one cluster consists of."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        certificate: Path,
        key: Path,
        network: ClusterNetwork = MACHINE,
    ) -> None:
        """`certificate` and `key` are for hosts without a certificate of their own."""
        self._client = client
        self._clock = clock
        self._network = network
        self._certificate, self._key = certificate, key
        self._services: Cache[ServiceInfo] = Cache()
        self._slices = SliceIndex()
        self._ingresses: Cache[IngressInfo] = Cache()
        self._classes: Cache[IngressClassInfo] = Cache()
        self._secrets: Cache[SecretInfo] = Cache()
        self._table = IngressTable()
        self._changed = asyncio.Event()
        self._servers: list[HttpServer] = []
        self.ports: list[PublishedPort] = []
        """The ports on which it listens."""

    async def listen(self, wanted: list[PublishedPort], *, any_first: bool) -> GatewayRecord:
        """Listen on these ports; raises PortUnavailable. With `any_first` the first one is replaced
        by a free one if it is in use."""
        routing = Routing(self._services, self._slices, self._table)
        random = Random(SystemRandom().getrandbits(64))
        http = self._server(Gateway(routing, "http", random, self._network))
        https = self._server(Gateway(routing, "https", random, self._network))
        for at, each in enumerate(wanted):
            server, tls = (https, self._tls()) if each.target == HTTPS else (http, None)
            port = await _open(server, tls, each, or_any=any_first and not at)
            self.ports.append(each._replace(port=port))
        return GatewayRecord(tuple(self.ports))

    def _tls(self) -> ssl.SSLContext:
        return Certificates(self._table.secret, self._secrets, self._certificate, self._key).default

    def _server(self, gateway: Gateway) -> HttpServer:
        server = HttpServer(
            gateway.handle,
            self._clock,
            LIMITS,
            connection_limits=_CONNECTIONS,
            screen=gateway.screen,
        )
        self._servers.append(server)
        return server

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for server in self._servers:
                    tasks.create_task(server.sweep())
                for informer in self._informers():
                    tasks.create_task(informer.run())
                    await informer.synced.wait()
                await self._ensure_class()
                for cache in (self._ingresses, self._classes):
                    cache.listen(lambda key: self._changed.set())
                self._changed.set()
                await self._follow()
        finally:
            for server in self._servers:
                await server.close(grace=1)

    def _informers(self) -> list[Informer[Any]]:
        views: list[tuple[Resource[Any], type, Any, str]] = [
            (endpoint_slice.RESOURCE, SliceInfo, self._slices, ""),
            (service.RESOURCE, ServiceInfo, self._services, ""),
            (secret.RESOURCE, SecretInfo, self._secrets, _TLS_SECRETS),
            (CLASSES, IngressClassInfo, self._classes, ""),
            (INGRESSES, IngressInfo, self._ingresses, ""),
        ]
        return [
            Informer(self._client, sketches(resource, type_), receiver, self._clock, fields=fields)
            for resource, type_, receiver, fields in views
        ]

    async def _ensure_class(self) -> None:
        """Create the IngressClass of the gateway; the default one if there is no other."""
        if self._classes.get(CLASS) is not None:
            return
        others = any(DEFAULT_CLASS in each.metadata.annotations for each in self._classes)
        annotations = {} if others else {DEFAULT_CLASS: "true"}
        made = Document(
            apiVersion=f"{NETWORKING}/v1",
            kind=CLASSES.kind,
            metadata=ObjectMeta(name=CLASS, annotations=annotations),
            content={"spec": {"controller": CONTROLLER}},
        )
        with suppress(StatusError):
            await self._client.create(CLASSES, made)

    async def _follow(self) -> None:
        """Apply changes of Ingresses."""
        status = IngressStatusWriter(self._client, INGRESSES, addresses(self.ports))
        while True:
            await self._changed.wait()
            self._changed.clear()
            names = served_classes(self._classes)
            served = [each for each in self._ingresses if is_served(each, names)]
            fresh = IngressTable()
            for each in served:
                for _ in fresh.add(each):
                    await self._clock.give_way()
            self._table.become(fresh)
            for each in served:
                await status.write(each)
            await self._clock.sleep(_SETTLE_SECONDS)


async def _open(
    server: HttpServer, tls: ssl.SSLContext | None, wanted: PublishedPort, *, or_any: bool
) -> int:
    """Listen on a port, or on any other if that one is in use; returns its number."""
    try:
        return await server.listen(wanted.address, wanted.port, tls)
    except OSError as error:
        if not or_any:
            raise PortUnavailable(wanted, error) from error
    return await server.listen(wanted.address, 0, tls)


async def open_gateway(
    client: Client,
    clock: Clock,
    state: Path,
    *,
    port: int,
    published: tuple[PublishedPort, ...],
    certificate: tuple[Path, Path],
    network: ClusterNetwork = MACHINE,
) -> RunningGateway:
    """Listen, and write down where; raises PortUnavailable."""
    gateway = RunningGateway(client, clock, *certificate, network)
    wanted = listening.wanted_ports(port, published, listening.read(state))
    record = await gateway.listen(wanted, any_first=not port)
    listening.write(state, record)
    return gateway
