"""The metrics server: the metrics API by itself, in front of a cluster that is not kedge's."""

import asyncio
import gc
import logging
import signal
import ssl
from collections.abc import Callable

import uvloop
from msgspec.structs import replace

from kedge.apiserver.metrics.kubelets import KubeletCredentials
from kedge.client.client import Client
from kedge.client.cluster_login import ClusterCredentials, ReadLogin
from kedge.client.login import Login
from kedge.machinery.clock import SystemClock
from kedge.machinery.open_files import raise_limit
from kedge.metrics_server.config import MetricsServerConfig
from kedge.metrics_server.server import MetricsServerAddress, serve
from kedge.web.server import log_loop_error

OnReady = Callable[[MetricsServerAddress], None]


def run(config: MetricsServerConfig, read: ReadLogin, on_ready: OnReady) -> None:
    """Run until SIGTERM or SIGINT; `read` returns address and credentials of the cluster."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    config.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    gc.set_threshold(20_000, 20, 50)
    raise_limit()
    uvloop.run(_run(config, read, on_ready))


async def _run(config: MetricsServerConfig, read: ReadLogin, on_ready: OnReady) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(log_loop_error)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    clock = SystemClock()
    credentials = ClusterCredentials(read, clock)
    client = Client(credentials.transport(), user_agent="kedge-metrics")
    kubelets = KubeletAccess(config, credentials)
    try:
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(serve(config, client, kubelets, clock, on_ready))
            tasks.create_task(_end(stop, serving))
    finally:
        await client.close()


async def _end(stop: asyncio.Event, serving: asyncio.Task[None]) -> None:
    await stop.wait()
    serving.cancel()


class KubeletAccess:
    """Credentials for kubelets: those for the cluster. Kubelets are verified by the cluster's
    authority, unless the configuration has another."""

    def __init__(self, config: MetricsServerConfig, credentials: ClusterCredentials) -> None:
        self._credentials = credentials
        self._tls = _tls(config, credentials.login)

    def __call__(self) -> KubeletCredentials:
        return KubeletCredentials(self._tls, self._credentials.login.token)


def _tls(config: MetricsServerConfig, login: Login) -> ssl.SSLContext:
    trust = config.kubelets
    authority = trust.authority.read_bytes() if trust.authority else login.ca_pem
    # A kubeconfig that skips verification of the API server does not skip that of kubelets.
    return replace(login, ca_pem=authority, insecure=trust.anybody).tls()
