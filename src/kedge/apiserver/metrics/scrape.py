"""How an API server asks the kubelets of its own cluster."""

import asyncio
import ssl

from kedge.apiserver.agents import client_context
from kedge.apiserver.api import Api
from kedge.apiserver.config import ServerConfig
from kedge.apiserver.metrics.cluster import Known
from kedge.apiserver.metrics.kubelets import Access, Kubelets
from kedge.apiserver.telemetry import Telemetry
from kedge.metrics.scrape.scraper import Scraper, outcomes
from kedge.metrics.window_file import Store


async def scraper(config: ServerConfig, api: Api, telemetry: Telemetry) -> Scraper:
    """One that knows the server's nodes and calls them with the server's own certificate."""
    store = await asyncio.to_thread(Store, config.scraped, "")
    calls = Calls(config)
    made = Scraper(
        api.metrics,
        Known(api.cache),
        Kubelets(calls),
        store,
        api.clock,
        interval=config.scrape_seconds,
    )
    telemetry.counter(*outcomes(made))
    return made


class Calls:
    """The server's certificate for calling nodes, as it is now, and whom to believe."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._access: tuple[float, Access] | None = None

    def __call__(self) -> Access:
        pki, trust = self._config.pki, self._config.kubelets
        written = (pki / "node-client.crt").stat().st_mtime
        if self._access is None or self._access[0] != written:
            context = client_context(pki, trust.authority)
            if trust.anybody:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            self._access = written, Access(context)
        return self._access[1]
