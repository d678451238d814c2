"""Kubelets: reads the pages of kubelets over connections that stay open, up to a limit of size."""

import ssl
from collections.abc import Callable
from typing import Final, NamedTuple

from kedge.client.http import HttpTransport
from kedge.client.transport import Call
from kedge.metrics.scrape.cluster import KubeletError, NodeSketch
from kedge.metrics.scrape.page import PATH

MOST_BYTES: Final = 8 << 20
"""The limit for one page: some ten thousand containers."""
_HEADERS: Final = {"accept": "text/plain;version=0.0.4", "user-agent": "kedge-metrics"}


class KubeletCredentials(NamedTuple):
    """The authorities that sign kubelets, with our certificate or token."""

    tls: ssl.SSLContext
    token: str = ""


class _KubeletConnection(NamedTuple):
    """The transport to one kubelet, and the address and credentials that it was made for."""

    target: tuple[str, str, int, KubeletCredentials]
    transport: HttpTransport


class Kubelets:
    """Connects to any number of kubelets. Fulfils KubeletClient. `credentials` is called for each
    page, because credentials change."""

    def __init__(self, credentials: Callable[[], KubeletCredentials]) -> None:
        self._credentials = credentials
        self._connections: dict[str, _KubeletConnection] = {}

    async def fetch(self, node: NodeSketch) -> bytes:
        """The page of a node; raises KubeletError or OSError."""
        transport = await self._to(node)
        async with transport.stream(Call("GET", PATH, "", _HEADERS)) as stream:
            if stream.status != 200:
                raise KubeletError(f"the kubelet answered {stream.status}")
            pieces, size = [], 0
            async for piece in stream.pieces:
                pieces.append(piece)
                size += len(piece)
                if size > MOST_BYTES:
                    raise KubeletError(f"the kubelet sent more than {MOST_BYTES} bytes")
        return b"".join(pieces)

    async def forget(self, name: str) -> None:
        connection = self._connections.pop(name, None)
        if connection is not None:
            await connection.transport.close()

    async def close(self) -> None:
        for name in list(self._connections):
            await self.forget(name)

    async def _to(self, node: NodeSketch) -> HttpTransport:
        name, host = node.metadata.name, node.host
        if not host:
            raise KubeletError("the node does not say under which address it is found")
        target = (host, node.host_name, node.port, self._credentials())
        connection = self._connections.get(name)
        if connection is None or connection.target != target:
            await self.forget(name)
            where = f"[{host}]" if ":" in host else host
            credentials = target[3]
            try:
                transport = HttpTransport(
                    f"https://{where}:{node.port}",
                    tls=credentials.tls,
                    token=credentials.token,
                    # Of all nodes beside the server, only the names are in their certificates.
                    server_name=node.host_name,
                )
            except ValueError as error:
                raise KubeletError(str(error)) from None
            connection = self._connections[name] = _KubeletConnection(target, transport)
        return connection.transport
