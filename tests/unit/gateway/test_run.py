"""The whole gateway, on an API server in this process."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kedge.apiserver import pki
from kedge.gateway import listening
from kedge.gateway.listening import PortUnavailable
from kedge.gateway.run import RunningGateway, open_gateway
from kedge.settings.published_port import PublishedPort
from kedge.testing.local_server import LocalServer

CLASSES = "/apis/networking.k8s.io/v1/ingressclasses"
INGRESSES = "/apis/networking.k8s.io/v1/namespaces/default/ingresses"
SERVICES = "/api/v1/namespaces/default/services"


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running() as server:
        yield server


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    pki.ensure(tmp_path / "pki", ("localhost",))
    return tmp_path / "pki" / "server.crt", tmp_path / "pki" / "server.key"


class Started:
    """A gateway that runs."""

    def __init__(self, server: LocalServer, gateway: RunningGateway) -> None:
        self.server = server
        self.gateway = gateway
        self._task = server.start(gateway.run())

    async def settle(self) -> None:
        for _ in range(10):
            await self.server.settle()
            await self.server.clock.advance(0.1)

    async def ask(self, host: str, path: str = "/") -> bytes:
        """The whole answer of the first port."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.gateway.ports[0].port)
        lines = (f"GET {path} HTTP/1.1", f"Host: {host}", "Connection: close", "", "")
        writer.write("\r\n".join(lines).encode())
        async with asyncio.timeout(10):
            answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer

    async def stop(self) -> None:
        self._task.cancel()
        await self.settle()
        await self.server.clock.advance(10)
        await asyncio.wait([self._task])


async def started(
    server: LocalServer, keys: tuple[Path, Path], state: Path, *published: PublishedPort
) -> Started:
    gateway = await open_gateway(
        server.client, server.clock, state, port=0, published=published, certificate=keys
    )
    made = Started(server, gateway)
    await made.settle()
    return made


async def test_the_class_of_the_gateway_is_made_and_is_the_default(
    server: LocalServer, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    running = await started(server, keys, tmp_path)
    found: Any = await server.get(f"{CLASSES}/kedge")
    await running.stop()
    assert found["spec"] == {"controller": "kedge.dev/gateway"}
    annotations = {"ingressclass.kubernetes.io/is-default-class": "true"}
    assert found["metadata"]["annotations"] == annotations


async def test_another_default_class_stays_the_default(
    server: LocalServer, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    annotations = {"ingressclass.kubernetes.io/is-default-class": "true"}
    meta = {"name": "nginx", "annotations": annotations}
    await server.post(CLASSES, {"metadata": meta, "spec": {"controller": "k8s.io/nginx"}})
    running = await started(server, keys, tmp_path)
    found: Any = await server.get(f"{CLASSES}/kedge")
    await running.stop()
    assert "annotations" not in found["metadata"]


async def test_ingresses_are_followed_and_get_the_address(
    server: LocalServer, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    running = await started(server, keys, tmp_path)
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
    spec = {"ingressClassName": "kedge", "rules": [{"host": "a.com", "http": {"paths": paths}}]}
    assert b"404" in (await running.ask("a.com")).splitlines()[0]
    await server.post(INGRESSES, {"metadata": {"name": "i"}, "spec": spec})
    await running.settle()
    assert b'there is no service "web"' in await running.ask("a.com")
    await server.post(SERVICES, {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}})
    await running.settle()
    assert b'no endpoints available for service "web"' in await running.ask("a.com")
    assert b'no endpoints available for service "web"' in await running.ask("web.default.localhost")
    shown: Any = await server.get(f"{INGRESSES}/i")
    port = running.gateway.ports[0].port
    assert shown["status"]["loadBalancer"]["ingress"] == [
        {"ip": "127.0.0.1", "ports": [{"port": port, "protocol": "TCP"}]}
    ]
    await server.delete(f"{INGRESSES}/i")
    await running.settle()
    assert b"no Ingress has a rule" in await running.ask("a.com")
    await running.stop()


async def test_a_port_in_use_is_replaced_unless_it_was_asked_for(
    server: LocalServer, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        before = PublishedPort("127.0.0.1", taken.getsockname()[1], 80)
        listening.write(tmp_path, listening.GatewayRecord((before,)))
        running = await started(server, keys, tmp_path)
        assert running.gateway.ports[0].port not in (0, before.port)
        assert listening.read(tmp_path) == listening.GatewayRecord(tuple(running.gateway.ports))
        await running.stop()
        with pytest.raises(PortUnavailable, match="in use by another program"):
            await open_gateway(
                server.client,
                server.clock,
                tmp_path,
                port=before.port,
                published=(),
                certificate=keys,
            )


async def test_https_is_offered_where_it_is_published(
    server: LocalServer, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    running = await started(server, keys, tmp_path, PublishedPort("127.0.0.1", 0, 443))
    first, second = running.gateway.ports
    assert (first.target, second.target) == (80, 443)
    assert second.port != 0
    await running.stop()
