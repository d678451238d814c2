"""Connections to extension servers, with the certificate of the front proxy."""

import base64
import ssl
from collections import OrderedDict
from pathlib import Path
from typing import Final

from kedge.apiserver.aggregation.remote_version import RemoteVersion
from kedge.apiserver.webhooks.services import Resolve
from kedge.machinery.errors import StatusError
from kedge.machinery.tls_trust import trust
from kedge.web.cluster_network import MACHINE, ClusterNetwork
from kedge.web.exchange import Exchange, OutgoingRequest, ServerAddress
from kedge.web.kept_connections import KeptConnections

CONTEXTS: Final = 200
"""TLS contexts that are kept."""


class ExtensionServers:
    """Finds the servers of remote versions, and proves to them who asks."""

    def __init__(self, resolve: Resolve, pki: Path, network: ClusterNetwork = MACHINE) -> None:
        """`pki` is the directory with the front proxy's certificate."""
        self._resolve = resolve
        self._network = network
        self._certificate = pki / "client.crt"
        self._key = pki / "client.key"
        self._contexts: OrderedDict[tuple[str, bool, float], ssl.SSLContext] = OrderedDict()
        self._connections = KeptConnections()

    def address(self, remote: RemoteVersion) -> ServerAddress:
        """Return a server of the version; 503 if its Service has none, 500 if the authorities in
        its APIService cannot be used."""
        host, port = self._resolve(remote.namespace, remote.service, remote.port)
        make = self._network.maker(host)
        return ServerAddress(host, port, self._context(remote), remote.host, make)

    async def ask(self, address: ServerAddress, request: OutgoingRequest) -> Exchange:
        """Send a request to a server; raises OSError."""
        return await self._connections.ask(address, request)

    def close(self) -> None:
        self._connections.close()

    def _context(self, remote: RemoteVersion) -> ssl.SSLContext:
        written = self._certificate.stat().st_mtime if self._certificate.exists() else 0.0
        key = remote.ca_bundle, remote.is_insecure, written
        context = self._contexts.get(key)
        if context is None:
            context = self._contexts[key] = self._made(remote)
            if len(self._contexts) > CONTEXTS:
                self._contexts.popitem(last=False)
        self._contexts.move_to_end(key)
        return context

    def _made(self, remote: RemoteVersion) -> ssl.SSLContext:
        try:
            context = _trusting(remote)
            context.load_cert_chain(self._certificate, self._key)
        except (OSError, ValueError) as error:
            raise StatusError(500, "InternalError", _explained(error)) from error
        return context


def _trusting(remote: RemoteVersion) -> ssl.SSLContext:
    """Return a context that verifies the server as the APIService says."""
    if remote.ca_bundle:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trust(context, base64.b64decode(remote.ca_bundle))
        return context
    context = ssl.create_default_context()
    if remote.is_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _explained(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "the certificate of the front proxy does not exist yet"
    return "unable to load root certificates: unable to parse bytes as PEM block"
