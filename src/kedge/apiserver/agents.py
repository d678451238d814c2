"""Agents: where the agents of nodes are, and how the server proves to them who it is."""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from kedge.machinery.errors import StatusError
from kedge.web.cluster_network import MACHINE, ClusterNetwork
from kedge.web.exchange import ServerAddress

_DEFAULT_PORT: Final = 10250
_PREFERRED: Final = ("InternalIP", "InternalDNS", "Hostname", "ExternalIP", "ExternalDNS")


class AgentLocator(Protocol):
    """Finds the agents of nodes."""

    def address(self, node: Mapping[str, Any]) -> ServerAddress:
        """Return where the agent of a node listens."""
        ...


class Agents:
    """Connects to nodes with the server's own certificate, and only to those of its cluster."""

    def __init__(self, pki: Path, network: ClusterNetwork = MACHINE) -> None:
        self._pki = pki
        self._network = network
        self._tls: tuple[float, ssl.SSLContext] | None = None

    def address(self, node: Mapping[str, Any]) -> ServerAddress:
        """Where the agent of a node listens, as its object says."""
        status = node.get("status") or {}
        endpoint = (status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}
        addresses = status.get("addresses") or ()
        host = _host(addresses)
        if not host:
            name = node["metadata"]["name"]
            raise StatusError(500, "", f"no preferred addresses found; node {name} has none")
        port = endpoint.get("Port") or _DEFAULT_PORT
        # The certificate of every node names its host name. That of a node beside the server was
        # issued before the node had chosen its network, and with it its address.
        name = _of_type(addresses, "Hostname") or None
        return ServerAddress(host, port, self._context(), name, self._network.maker(host))

    def _context(self) -> ssl.SSLContext:
        certificate = self._pki / "node-client.crt"
        written = certificate.stat().st_mtime
        if self._tls is None or self._tls[0] != written:
            self._tls = written, client_context(self._pki)
        return self._tls[1]


def client_context(pki: Path, authority: Path | None = None) -> ssl.SSLContext:
    """To call nodes with; believes those whom the cluster's authority has signed, or another."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority or pki / "ca.crt")
    context.load_cert_chain(pki / "node-client.crt", pki / "node-client.key")
    return context


def _host(addresses: Any) -> str:
    return next(filter(None, (_of_type(addresses, kind) for kind in _PREFERRED)), "")


def _of_type(addresses: Any, kind: str) -> str:
    return next((each.get("address", "") for each in addresses if each.get("type") == kind), "")
