"""A connection to a server in this process, as commands have one to a cluster."""

from array import array
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kedge.cli.objects.connection import ApiSession
from kedge.client.client import Client
from kedge.client.discovery import Discovery
from kedge.client.login import Login
from kedge.client.transport import Call, Reply, Transport
from kedge.metrics.frame import WIDTH, Frame, FrameContainer, FramePod
from kedge.metrics.windows import TICK_SECONDS
from kedge.testing.local_server import LocalServer


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running() as server:
        yield server


@pytest.fixture
def there(server: LocalServer) -> ApiSession:
    login = Login(context="here", file=Path("config"), server="https://here")
    return ApiSession(login, server.client, Discovery(server.client))


class NullTransport:
    """Prints null for empty lists and for times that are not set, as a server written in Go."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.stream = inner.stream
        self.close = inner.close

    async def send(self, call: Call) -> Reply:
        reply = await self._inner.send(call)
        if not reply.body:
            return reply
        document = _with_nulls(msgspec.json.decode(reply.body))
        return replace(reply, body=msgspec.json.encode(document))


def _with_nulls(value: Any) -> Any:
    match value:
        case dict():
            if "status" in value and "type" in value:
                value = {"lastProbeTime": None, "reason": None, **value}
            return {name: _with_nulls(each) for name, each in value.items()}
        case []:
            return None
        case list():
            return [*map(_with_nulls, value)]
        case _:
            return value


@pytest.fixture
def go_there(server: LocalServer, there: ApiSession) -> ApiSession:
    """The same server, but it prints nulls."""
    client = Client(NullTransport(server.transport_with({})))
    return replace(there, client=client, discovery=Discovery(client))


class Usage:
    """A node n1, which reports whatever a test has its pods use for half an hour."""

    def __init__(self, server: LocalServer) -> None:
        self._server = server
        self._pods: dict[str, tuple[str, list[str]]] = {}

    async def pod(
        self, key: str, spec: Mapping[str, Any], metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Make a pod, as namespace/name."""
        namespace, name = key.split("/")
        meta = {**(metadata or {}), "name": name}
        body = {"metadata": meta, "spec": {"nodeName": "n1", **spec}}
        made = await self._server.post(f"/api/v1/namespaces/{namespace}/pods", body)
        names = [each["name"] for among in spec.values() for each in among]
        self._pods[key] = (made["metadata"]["uid"], names)

    def report(self, cores: float, *, ended: bool = False) -> None:
        """Each container uses that much, and 64 MiB; it may have ended long ago."""
        tick = int(self._server.clock.now().timestamp()) // TICK_SECONDS
        since = tick * TICK_SECONDS - 1800
        end = tick - 60 if ended else 0
        pods = []
        for key, (uid, names) in self._pods.items():
            namespace, name = key.split("/")
            inside = [FrameContainer(each, since, 0) for each in names]
            pods.append(FramePod(namespace, name, uid, since, end, 0, inside))
        values = array("f", [cores, 64 << 20] * (WIDTH // 2))
        self._server.app.api.metrics.take("n1", Frame("n1", "u", tick, 10, since, [], pods, values))


@pytest.fixture
async def usage(server: LocalServer) -> Usage:
    await server.post("/api/v1/nodes", {"metadata": {"name": "n1"}})
    return Usage(server)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of commands under test."""
    return {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
