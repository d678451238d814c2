"""The login of a server beside a cluster: its kubeconfig, or the service account of its pod."""

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from math import inf
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

    def transport(self) -> "TokenTransport":
        """Return what carries requests to the cluster."""
        return TokenTransport(self, replace(self.login, token="").transport())

    def expire(self) -> None:
        """Read the credentials again for the next request: the server refused those of now."""
        self._at = -inf

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
    """Fulfils Transport; sends the current token with each request. After a refusal the next
    request has the token that is on disk by then."""

    def __init__(self, credentials: ClusterCredentials, carrier: Transport) -> None:
        """`carrier` takes the requests to the server."""
        self._credentials = credentials
        self._transport = carrier

    async def send(self, call: Call) -> Reply:
        reply = await self._transport.send(self._signed(call))
        self._check(reply.status)
        return reply

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[Stream]:
        async with self._transport.stream(self._signed(call)) as stream:
            self._check(stream.status)
            yield stream

    async def close(self) -> None:
        await self._transport.close()

    def _check(self, status: int) -> None:
        if status == HTTPStatus.UNAUTHORIZED:
            self._credentials.expire()

    def _signed(self, call: Call) -> Call:
        token = self._credentials.login.token
        if not token:
            return call
        return replace(call, headers={**call.headers, "authorization": f"Bearer {token}"})
