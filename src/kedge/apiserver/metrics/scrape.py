"""The scraper of an API server, for the kubelets of its own cluster."""

import asyncio
import ssl
from collections.abc import Iterator

from kedge.apiserver.agents import client_context
from kedge.apiserver.api import Api
from kedge.apiserver.config import ServerConfig
from kedge.apiserver.metrics.cluster import CachedCluster
from kedge.apiserver.metrics.kubelets import KubeletCredentials, Kubelets
from kedge.apiserver.telemetry import Telemetry, Values
from kedge.metrics.scrape.scraper import Scraper
from kedge.metrics.window_file import WindowFile


async def scraper(config: ServerConfig, api: Api, telemetry: Telemetry) -> Scraper:
    """A scraper that calls the server's nodes with the server's own certificate."""
    store = await asyncio.to_thread(WindowFile, config.scraped, "")
    made = Scraper(
        api.metrics,
        CachedCluster(api.cache),
        Kubelets(NodeClientCredentials(config)),
        store,
        api.clock,
        interval=config.scrape_seconds,
    )
    telemetry.counter(*outcomes(made))
    return made


class NodeClientCredentials:
    """The server's certificate for calling nodes, read again when it was renewed."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._current: tuple[float, KubeletCredentials] | None = None

    def __call__(self) -> KubeletCredentials:
        pki, trust = self._config.pki, self._config.kubelets
        written = (pki / "node-client.crt").stat().st_mtime
        if self._current is None or self._current[0] != written:
            context = client_context(pki, trust.authority)
            if trust.anybody:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            self._current = written, KubeletCredentials(context)
        return self._current[1]


def outcomes(scraper: Scraper) -> tuple[str, str, Values]:
    """The counter of scrapes on /metrics: name, text and values."""

    def read() -> Iterator[tuple[str, float]]:
        for what, number in sorted(scraper.counts.items()):
            yield f'outcome="{what}"', number

    return "kedge_metrics_scrapes_total", "Readings of kubelets, by what became of them.", read
