"""The metrics server: the metrics API by itself, in front of a cluster that is not kedge's."""

import asyncio
import gc
import logging
import signal
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import uvloop
from msgspec.structs import replace

from kedge.apiserver.metrics.kubelets import KubeletCredentials
from kedge.client.client import Client
from kedge.client.kubeconfig import KubeconfigError
from kedge.client.login import Login
from kedge.client.transport import Call, Reply, Stream, Transport
from kedge.machinery.clock import Clock, SystemClock
from kedge.machinery.open_files import raise_limit
from kedge.metrics_server.config import MetricsServerConfig
from kedge.metrics_server.server import MetricsServerAddress, serve
from kedge.web.server import log_loop_error

log = logging.getLogger(__name__)

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The credentials of a pod."""
_READ_AGAIN: Final = 60.0
"""Seconds after which credentials are read again: tokens of pods are good for an hour."""

OnReady = Callable[[MetricsServerAddress], None]
ReadLogin = Callable[[], Login]


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
    client = Client(TokenTransport(credentials), user_agent="kedge-metrics")
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


def in_cluster(environment: Mapping[str, str], home: Path = SERVICE_ACCOUNT) -> Login:
    """The login of a pod to its cluster; raises KubeconfigError outside of a cluster."""
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    port = environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise KubeconfigError("this is no pod of a cluster: name a kubeconfig with --kubeconfig")
    where = f"[{host}]" if ":" in host else host
    try:
        ca_pem, token = (home / "ca.crt").read_bytes(), (home / "token").read_text().strip()
    except OSError as error:
        raise KubeconfigError(f"{error.filename}: {error.strerror}") from error
    server = f"https://{where}:{port}"
    return Login(context="", file=home / "token", server=server, ca_pem=ca_pem, token=token)


class ClusterCredentials:
    """The login to the cluster, read again from time to time."""

    def __init__(self, read: ReadLogin, clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._login = read()
        self._at = clock.monotonic()

    @property
    def login(self) -> Login:
        if self._clock.monotonic() - self._at > _READ_AGAIN:
            self._at = self._clock.monotonic()
            try:
                self._login = self._read()
            except KubeconfigError as error:
                log.warning("credentials not read again error=%r", str(error))
        return self._login


class TokenTransport:
    """Fulfils Transport; sends the current token with each request."""

    def __init__(self, credentials: ClusterCredentials) -> None:
        self._credentials = credentials
        self._transport: Transport = replace(credentials.login, token="").transport()

    async def send(self, call: Call) -> Reply:
        return await self._transport.send(self._signed(call))

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[Stream]:
        async with self._transport.stream(self._signed(call)) as stream:
            yield stream

    async def close(self) -> None:
        await self._transport.close()

    def _signed(self, call: Call) -> Call:
        token = self._credentials.login.token
        if not token:
            return call
        return replace(call, headers={**call.headers, "authorization": f"Bearer {token}"})


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
