"""All that aggregation does beside requests: certificates, the ConfigMap for extension servers,
APIServices of local versions, and checks of remote ones."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from kedge.apiserver import bootstrap, pki
from kedge.apiserver.aggregation.aggregator import Aggregator
from kedge.apiserver.aggregation.front_proxy import (
    CLIENT_NAME,
    CONFIG_MAP,
    NAMESPACE,
    TrustedProxies,
    configuration,
)
from kedge.apiserver.aggregation.local_api_services import LocalApiServices
from kedge.apiserver.api import Api
from kedge.apiserver.verbs import write
from kedge.apiserver.verbs.patches import DesiredDocument
from kedge.machinery.errors import StatusError
from kedge.storage.store import StoreError

log = logging.getLogger(__name__)

SETTLE_SECONDS: Final = 0.5
"""Time from the first answer to this work: nodes that start at the same time come first."""
PUBLISH_SECONDS: Final = 60.0
"""How often certificate and ConfigMap are checked."""


class FrontProxyPki(NamedTuple):
    """Where the front proxy's certificates are, and the authority of ordinary clients."""

    directory: Path
    client_ca: bytes
    others: Callable[[], TrustedProxies] | None = None
    """Returns proxies in front of this server, which extension servers believe too."""


async def aggregate(
    api: Api,
    aggregator: Aggregator,
    certificates: FrontProxyPki,
    on_registered: Callable[[], None],
) -> None:
    """Do all of it until cancelled; `on_registered` is called once all local versions have their
    APIServices."""
    await api.clock.sleep(SETTLE_SECONDS)
    await _publish_once(api, certificates)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(aggregator.run())
        tasks.create_task(LocalApiServices(api, api.clock).run(on_registered))
        tasks.create_task(_keep_published(api, certificates))


async def _keep_published(api: Api, certificates: FrontProxyPki) -> None:
    while True:
        await api.clock.sleep(PUBLISH_SECONDS)
        await _publish_once(api, certificates)


async def _publish_once(api: Api, certificates: FrontProxyPki) -> None:
    try:
        proxy_ca = await asyncio.to_thread(
            pki.ensure_front_proxy, certificates.directory, api.clock.now()
        )
        others = None if certificates.others is None else certificates.others()
        proxies = TrustedProxies(proxy_ca, (CLIENT_NAME,)).joined(others)
        await publish(api, configuration(certificates.client_ca, proxies))
    except (OSError, StatusError, StoreError, pki.AuthorityError) as error:
        # The server continues: only extension servers need them.
        log.error("front proxy not published, retrying error=%s", error)


async def publish(api: Api, data: dict[str, str]) -> None:
    """Write the ConfigMap for extension servers, unless it says the same already."""
    meta = {"name": CONFIG_MAP, "namespace": NAMESPACE}
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
    request = bootstrap.request_for(api, document, "update")
    item = api.find(request)
    if item is None:
        await bootstrap.ensure_object(api, document)
        return

    def republished(live: dict[str, Any]) -> DesiredDocument:
        return DesiredDocument(live | {"data": {**(live.get("data") or {}), **data}})

    live = item.document()
    if republished(live).document != live:
        await write.modify(api, request, republished, write.MAIN, "UpdateOptions")
