"""A connection to a server in this process, as commands have one to a cluster."""

from array import array
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kedge.cli.objects.connection import ApiSession
from kedge.client.discovery import Discovery
from kedge.client.login import Login
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


class Usage:
    """A node n1, which reports whatever a test has its pods use for half an hour."""

    def __init__(self, server: LocalServer) -> None:
        self._server = server
        self._pods: dict[str, tuple[str, list[str]]] = {}

    async def pod(self, key: str, spec: Mapping[str, Any]) -> None:
        """Make a pod, as namespace/name."""
        namespace, name = key.split("/")
        body = {"metadata": {"name": name}, "spec": {"nodeName": "n1", **spec}}
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
