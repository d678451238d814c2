"""Stock kubelets, on real connections, and a server that reads them."""

import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from kedge.apiserver import pki
from kedge.apiserver.metrics.cluster import CachedCluster
from kedge.apiserver.metrics.kubelets import KubeletCredentials, Kubelets
from kedge.machinery.clock import SystemClock
from kedge.metrics.scrape.scraper import Scraper
from kedge.metrics.window_file import WindowFile
from kedge.testing.kubelet import FakeKubelet
from kedge.testing.local_server import LocalServer
from kedge.web.server import HttpServer

TOKEN = "kubelets-know-it"


class Stage:
    """Nodes with kubelets, and their pods."""

    def __init__(self, server: LocalServer, directory: Path) -> None:
        self.server = server
        self.directory = directory
        self.identity = pki.ensure(directory / "pki", ["127.0.0.1"])
        self.store = WindowFile(directory / "usage", "")
        self.kubelets: dict[str, FakeKubelet] = {}
        self.listeners: list[HttpServer] = []
        self.trusted = ssl.create_default_context(cadata=self.identity.ca_pem.decode())
        self.lines = Kubelets(lambda: KubeletCredentials(self.trusted, TOKEN))
        self.scraper = self.another()

    def another(self) -> Scraper:
        """A collector that goes on with what the last one left."""
        api = self.server.app.api
        clock = self.server.clock
        return Scraper(
            api.metrics, CachedCluster(api.cache), self.lines, self.store, clock, interval=10
        )

    async def node(self, name: str, handle: Callable[[Any], Any] | None = None) -> FakeKubelet:
        """A node; its kubelet may be given something else to answer."""
        kubelet = FakeKubelet(self.server.clock, TOKEN)
        listener = HttpServer(handle or kubelet.handle, SystemClock())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        pair = (self.directory / "pki" / "server.crt", self.directory / "pki" / "server.key")
        context.load_cert_chain(*pair)
        port = await listener.listen("127.0.0.1", 0, context)
        self.listeners.append(listener)
        self.kubelets[name] = kubelet
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        await self.server.post("/api/v1/nodes", {"metadata": {"name": name}})
        await self.server.merge(f"/api/v1/nodes/{name}/status", {"status": status})
        return kubelet

    async def pod(self, node: str, name: str, cores: float = 0.25, *containers: str) -> str:
        """A pod whose containers run; returns its uid."""
        names = containers or ("main",)
        spec = {"nodeName": node, "containers": [{"name": c, "image": "x"} for c in names]}
        body = {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec}
        made = await self.server.post("/api/v1/namespaces/default/pods", body)
        for container in names:
            self.kubelets[node].run("default", name, container, cores, 64 << 20)
        return str(made["metadata"]["uid"])

    async def rounds(self, count: int) -> None:
        """Ten seconds pass and every node is read, so many times."""
        for _ in range(count):
            await self.server.clock.advance(10)
            for name in self.kubelets:
                await self.scraper.scrape(name)


@pytest.fixture
async def stage(server: LocalServer, tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(server, tmp_path)
    yield made
    await made.lines.close()
    for listener in made.listeners:
        await listener.close()
