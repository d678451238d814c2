"""Kubelets: asks the kubelets of nodes, on connections that are kept, and reads no more than is
reasonable."""

import ssl
from collections.abc import Callable
from typing import Final, NamedTuple

from kedge.apiserver.metrics.cluster import KnownNode
from kedge.client.http import HttpTransport
from kedge.client.transport import Call
from kedge.metrics.scrape.page import PATH

MOST_BYTES: Final = 8 << 20
"""Of one page: some ten thousand containers."""
_HEADERS: Final = {"accept": "text/plain;version=0.0.4", "user-agent": "kedge-metrics"}


class Unanswered(Exception):
    """A kubelet could not be asked, or did not answer as one does."""


class Access(NamedTuple):
    """Whom to believe, and who we are."""

    tls: ssl.SSLContext
    token: str = ""


class _Line(NamedTuple):
    """A way to one kubelet, and what it was made of."""

    made_of: tuple[str, int, Access]
    transport: HttpTransport


class Kubelets:
    """Connects to any number of them; `access` is asked each time, since credentials change."""

    def __init__(self, access: Callable[[], Access]) -> None:
        self._access = access
        self._lines: dict[str, _Line] = {}

    async def fetch(self, node: KnownNode) -> bytes:
        """The page of a node; raises Unanswered or OSError."""
        transport = await self._to(node)
        async with transport.stream(Call("GET", PATH, "", _HEADERS)) as stream:
            if stream.status != 200:
                raise Unanswered(f"the kubelet answered {stream.status}")
            pieces, size = [], 0
            async for piece in stream.pieces:
                pieces.append(piece)
                size += len(piece)
                if size > MOST_BYTES:
                    raise Unanswered(f"the kubelet sent more than {MOST_BYTES} bytes")
        return b"".join(pieces)

    async def forget(self, name: str) -> None:
        line = self._lines.pop(name, None)
        if line is not None:
            await line.transport.close()

    async def close(self) -> None:
        for name in list(self._lines):
            await self.forget(name)

    async def _to(self, node: KnownNode) -> HttpTransport:
        name, host = node.metadata.name, node.host
        if not host:
            raise Unanswered("the node does not say under which address it is found")
        made_of = (host, node.port, self._access())
        line = self._lines.get(name)
        if line is None or line.made_of != made_of:
            await self.forget(name)
            where = f"[{host}]" if ":" in host else host
            access = made_of[2]
            try:
                transport = HttpTransport(
                    f"https://{where}:{node.port}", tls=access.tls, token=access.token
                )
            except ValueError as error:
                raise Unanswered(str(error)) from None
            line = self._lines[name] = _Line(made_of, transport)
        return line.transport
