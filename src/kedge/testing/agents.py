"""FakeAgent: a node agent for tests of the API server, on loopback without TLS."""

import asyncio

from kedge.testing.clock import FakeClock
from kedge.testing.local_server import LocalServer
from kedge.web.duplex import Duplex
from kedge.web.message import HttpRequest, Response, text_response
from kedge.web.server import HttpServer


class FakeAgent:
    """Remembers what it was asked, and says what the test wants. To those who want another
    protocol it shouts back what it hears."""

    def __init__(self) -> None:
        self.asked: list[HttpRequest] = []
        self.answer = text_response("said\n")
        self.port = 0
        self._server = HttpServer(self._handle, FakeClock())

    async def listen(self) -> None:
        self.port = await self._server.listen("127.0.0.1", 0, None)

    async def register(self, server: LocalServer, node: str = "n") -> None:
        """Make the server know a node whose agent this is."""
        await server.post("/api/v1/nodes", {"metadata": {"name": node}})
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.port}},
        }
        await server.merge(f"/api/v1/nodes/{node}/status", {"status": status})

    async def close(self) -> None:
        for connection in list(self._server.connections):
            connection.abort()
        self._server.stop_listening()
        for _ in range(10):
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0)

    def _handle(self, request: HttpRequest) -> Response:
        self.asked.append(request)
        if request.headers.get("upgrade") and self.answer.status == 200:
            headers = [("Connection", "Upgrade"), ("Upgrade", request.headers["upgrade"])]
            return Response(101, headers=headers, take_over=_shout)
        return self.answer


async def _shout(duplex: Duplex) -> None:
    while data := await duplex.read():
        duplex.write(data.upper())
