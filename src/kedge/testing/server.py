"""An API server on a real port for a test, and its clients."""

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path

from kedge.apiserver.config import ServerConfig
from kedge.apiserver.server import ApiServer, serve
from kedge.client.client import Client
from kedge.client.http import HttpTransport
from kedge.client.transport import Call, LocalTransport
from kedge.machinery.clock import SystemClock
from kedge.web.message import HttpRequest, Response


@asynccontextmanager
async def memory_server(state: Path) -> AsyncIterator[ApiServer]:
    """A server on a free port that keeps its objects in memory."""
    config = ServerConfig(state=state, port=0, store="memory")
    async with serve(config, SystemClock()) as running:
        yield running


def local_client(running: ApiServer) -> Client:
    """The administrator, inside the server's own process."""

    def handle(call: Call) -> Response | Awaitable[Response]:
        headers = {**call.headers, "authorization": f"Bearer {running.token}"}
        http = HttpRequest(call.method, call.path, call.query, headers, call.body)
        return running.app.handle(http)

    return Client(LocalTransport(handle), user_agent="kedge-test")


def http_client(running: ApiServer) -> Client:
    """The administrator, over TLS."""
    transport = HttpTransport(running.url, ca_pem=running.ca_pem, token=running.token)
    return Client(transport, user_agent="kedge-test")
