"""The running metrics server: the cluster's nodes and pods, their kubelets, and a listener."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from itertools import count
from typing import Final, NamedTuple

from kedge.api.core_v1 import config_map, node
from kedge.api.core_v1.pod import pod
from kedge.apiserver.api import Api
from kedge.apiserver.assembly import assemble
from kedge.apiserver.metrics.cluster import CachedCluster
from kedge.apiserver.metrics.kubelets import KubeletCredentials, Kubelets
from kedge.apiserver.metrics.scrape import outcomes
from kedge.apiserver.own_certificate import ServingCertificate, names_of, reachable
from kedge.apiserver.server_addresses import url
from kedge.apiserver.telemetry import Telemetry
from kedge.client.client import Client
from kedge.client.informer import Informer
from kedge.client.transport import Unreachable
from kedge.client.view import sketches
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.metrics.scrape.cluster import NodeSketch, PodSketch
from kedge.metrics.scrape.scraper import Scraper
from kedge.metrics.window_file import WindowFile
from kedge.metrics_server import front_proxy
from kedge.metrics_server.app import MetricsApp
from kedge.metrics_server.config import SERVICE, MetricsServerConfig
from kedge.metrics_server.delegated_auth import DelegatedAuth
from kedge.metrics_server.front_proxy import CONFIG_MAP, FrontProxy
from kedge.metrics_server.mirror import CacheMirror
from kedge.storage.memory import MemoryStore
from kedge.web.limits import ServerLimits
from kedge.web.server import HttpServer

log = logging.getLogger(__name__)

_LOOK_EVERY: Final = 60.0
"""Seconds between two looks at how the front proxy is to be known."""

_BODY_BYTES: Final = 64 << 10
"""No handler reads a body. Clients may still send small ones, such as delete options."""


class MetricsServerAddress(NamedTuple):
    """A metrics server that answers."""

    url: str
    ca_pem: bytes
    """The authority for the server in front; empty if a certificate was configured."""


class FrontProxyWatcher:
    """The front proxy as the cluster describes it now."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self.now = FrontProxy("")

    async def look(self) -> FrontProxy:
        """Ask the cluster; raises StatusError, Unreachable or front_proxy.FrontProxyError."""
        namespace, name = CONFIG_MAP
        try:
            found = await self._client.get(config_map.RESOURCE, name, namespace)
        except StatusError as error:
            if error.code != 404:
                raise
            log.warning("the cluster has no %s/%s: only tokens are accepted", namespace, name)
            return self.now
        self.now = front_proxy.read(found.data)
        return self.now

    async def follow(self, context: ssl.SSLContext) -> None:
        """Trust new authorities of the proxy as the cluster publishes them, until cancelled."""
        known = self.now.ca_pem
        while True:
            await self._clock.sleep(_LOOK_EVERY)
            try:
                fresh = (await self.look()).ca_pem
                if fresh and fresh != known:
                    believe(context, fresh)
                    known = fresh
            except (StatusError, Unreachable, front_proxy.FrontProxyError, ssl.SSLError) as error:
                log.warning("front proxy not looked up error=%r", str(error))


def believe(context: ssl.SSLContext, ca_pem: str) -> None:
    """Verify certificates of clients by this authority, too."""
    context.load_verify_locations(cadata=ca_pem)
    context.verify_mode = ssl.CERT_OPTIONAL


async def serve(
    config: MetricsServerConfig,
    client: Client,
    access: Callable[[], KubeletCredentials],
    clock: Clock,
    on_ready: Callable[[MetricsServerAddress], None],
) -> None:
    """Serve until cancelled; `client` speaks to the cluster, `access` is for its kubelets."""
    certificate = _certificate(config)
    identity = certificate.identity()
    context = certificate.context()
    proxy = FrontProxyWatcher(client, clock)
    if proxy_ca_pem := (await proxy.look()).ca_pem:
        believe(context, proxy_ca_pem)
    api = await assemble(MemoryStore(clock), clock, (), usage_window=config.window)
    store = await asyncio.to_thread(WindowFile, config.windows, "")
    kubelets, every = Kubelets(access), config.resolution
    scraper = Scraper(api.metrics, CachedCluster(api.cache), kubelets, store, clock, interval=every)
    app = MetricsApp(api, DelegatedAuth(client, lambda: proxy.now, clock), _telemetry(scraper))
    # The caller is known only after a call to the cluster, so bodies are not kept.
    listener = HttpServer(app.handle, clock, ServerLimits(body_bytes=_BODY_BYTES))
    informers = _informers(api, client, clock)
    port = await listener.listen(config.host, config.port, context)
    running = MetricsServerAddress(
        url(reachable(config.host), port), identity.ca_pem if identity else b""
    )

    async def read_kubelets() -> None:
        for informer in informers:
            await informer.synced.wait()
        app.ready = True
        on_ready(running)
        await scraper.run()

    try:
        async with asyncio.TaskGroup() as tasks:
            for informer in informers:
                tasks.create_task(informer.run())
            tasks.create_task(read_kubelets())
            tasks.create_task(listener.sweep())
            tasks.create_task(api.metrics.run())
            tasks.create_task(proxy.follow(context))
            if identity is not None:
                tasks.create_task(certificate.keep_renewed(identity, context, clock))
    finally:
        app.ready = False
        await listener.close()


def _certificate(config: MetricsServerConfig) -> ServingCertificate:
    return ServingCertificate(
        directory=config.pki,
        hosts=names_of(config.host, *config.hosts, *SERVICE),
        given=config.certificate,
        given_key=config.key,
    )


def _informers(
    api: Api, client: Client, clock: Clock
) -> tuple[Informer[NodeSketch], Informer[PodSketch]]:
    revisions = count(api.store.revision + 1)
    nodes: CacheMirror[NodeSketch] = CacheMirror(api.cache.of(node.RESOURCE), revisions)
    pods: CacheMirror[PodSketch] = CacheMirror(api.cache.of(pod.RESOURCE), revisions)
    return (
        Informer(client, sketches(node.RESOURCE, NodeSketch), nodes, clock),
        Informer(client, sketches(pod.RESOURCE, PodSketch), pods, clock),
    )


def _telemetry(scraper: Scraper) -> Telemetry:
    counts = Telemetry()
    counts.counter(*outcomes(scraper))
    return counts
