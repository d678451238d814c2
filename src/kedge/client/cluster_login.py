"""The login of a server beside a cluster: its kubeconfig, or the service account of its pod."""

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from kedge.client.kubeconfig import KubeconfigError
from kedge.client.login import Login
from kedge.client.transport import Call, Reply, Stream, Transport
from kedge.machinery.clock import Clock

log = logging.getLogger(__name__)

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The credentials of a pod."""
_READ_AGAIN: Final = 60.0
"""Seconds after which credentials are read again: tokens of pods are good for an hour."""

ReadLogin = Callable[[], Login]


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
