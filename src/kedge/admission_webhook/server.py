"""The running webhook: the LimitRanges of the cluster, and a listener."""

import asyncio
import gc
import logging
import signal
import ssl
from collections.abc import Callable
from typing import Final, NamedTuple

import uvloop

from kedge.admission_webhook import limit_ranges
from kedge.admission_webhook.app import AdmissionWebhookApp
from kedge.admission_webhook.config import SERVICE, AdmissionWebhookConfig
from kedge.admission_webhook.freshness import SILENCE_SECONDS, LimitRangeFreshness
from kedge.admission_webhook.limit_ranges import LimitRangesByNamespace
from kedge.apiserver.own_certificate import ServingCertificate, names_of, reachable
from kedge.apiserver.server_addresses import url
from kedge.client.client import Client
from kedge.client.cluster_login import ClusterCredentials, ReadLogin
from kedge.client.informer import Informer
from kedge.client.view import objects
from kedge.machinery.clock import Clock, SystemClock
from kedge.machinery.open_files import raise_limit
from kedge.web.limits import ServerLimits
from kedge.web.server import HttpServer, log_loop_error

LIMITS: Final = ServerLimits(
    # A review of an update has two objects, each of at most 3 MiB.
    body_bytes=8 << 20,
    body_seconds=15,
    # An API server keeps idle connections for 90 seconds. If the webhook closed them first, a
    # review that is sent in this moment would be lost, and a pod refused.
    first_seconds=180,
)


class AdmissionWebhookAddress(NamedTuple):
    """A webhook that answers."""

    url: str
    ca_pem: bytes
    """The authority for the API server; empty if a certificate was configured."""


OnReady = Callable[[AdmissionWebhookAddress], None]


def run(config: AdmissionWebhookConfig, read: ReadLogin, on_ready: OnReady) -> None:
    """Run until SIGTERM or SIGINT; `read` returns address and credentials of the cluster."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    gc.set_threshold(20_000, 20, 50)
    raise_limit()
    uvloop.run(_run(config, read, on_ready))


async def _run(config: AdmissionWebhookConfig, read: ReadLogin, on_ready: OnReady) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(log_loop_error)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    clock = SystemClock()
    credentials = ClusterCredentials(read, clock)
    client = Client(credentials.transport(), user_agent="kedge-admission-webhook")
    try:
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(serve(config, client, clock, on_ready))
            tasks.create_task(_end(stop, serving))
    finally:
        await client.close()


async def _end(stop: asyncio.Event, serving: asyncio.Task[None]) -> None:
    await stop.wait()
    serving.cancel()


def certificate_of(config: AdmissionWebhookConfig) -> ServingCertificate:
    """Return where the serving certificate is, and its names."""
    return ServingCertificate(
        directory=config.pki,
        hosts=names_of(config.host, *config.hosts, *SERVICE),
        given=config.certificate,
        given_key=config.key,
    )


async def serve(
    config: AdmissionWebhookConfig, client: Client, clock: Clock, on_ready: OnReady
) -> None:
    """Serve until cancelled; `client` speaks to the cluster."""
    certificate = certificate_of(config)
    identity = certificate.identity()
    context = certificate.context()
    if config.callers is not None:
        context.load_verify_locations(cafile=config.callers)
        context.verify_mode = ssl.CERT_REQUIRED
    ranges = LimitRangesByNamespace()
    informer = Informer(
        client, objects(limit_ranges.RESOURCE), ranges, clock, silence=SILENCE_SECONDS
    )
    app = AdmissionWebhookApp(ranges, LimitRangeFreshness(informer, clock).problem)
    listener = HttpServer(app.handle, clock, LIMITS)
    port = await listener.listen(config.host, config.port, context)
    ca_pem = identity.ca_pem if identity else b""
    running = AdmissionWebhookAddress(url(reachable(config.host), port), ca_pem)

    async def announce() -> None:
        await informer.synced.wait()
        on_ready(running)

    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(informer.run())
            tasks.create_task(announce())
            tasks.create_task(listener.sweep())
            if identity is not None:
                tasks.create_task(certificate.keep_renewed(identity, context, clock))
    finally:
        await listener.close()
