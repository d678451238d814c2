"""ServerEndpoints: the Service `kubernetes` leads to all servers that are alive."""

import logging
from collections.abc import Sequence
from typing import Any, Final

from kedge.apiserver import bootstrap
from kedge.apiserver.api import Api
from kedge.apiserver.several.membership import ServerMembership
from kedge.machinery.errors import StatusError
from kedge.storage.store import StoreError

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 2.0


class ServerEndpoints:
    """Publishes the addresses of servers that others can reach. The owner must `run` it."""

    def __init__(self, api: Api, membership: ServerMembership, host: str, port: int) -> None:
        self._api = api
        self._membership = membership
        self._host = host
        self._port = port

    async def run(self) -> None:
        """Keep the endpoints in step with the servers, until cancelled."""
        while True:
            try:
                await self._keep()
            except (StoreError, StatusError, OSError) as error:
                log.warning("endpoints of servers not published, retrying error=%s", error)
            await self._api.clock.sleep(LOOK_SECONDS)

    async def _keep(self) -> None:
        others = [peer.address for peer in self._membership.peers]
        wanted = addresses(self._host, self._port, others)
        if wanted != published(self._api):
            await bootstrap.publish(self._api, wanted, self._port)


def addresses(host: str, port: int, others: Sequence[str]) -> list[str]:
    """Return the hosts of all servers of one address family and port, as one EndpointSlice can have
    them; `others` are HOST PORT, or empty for servers that others cannot reach."""
    found = {host}
    for each in others:
        other, _, its_port = each.partition(" ")
        if its_port == str(port) and (":" in other) == (":" in host):
            found.add(other)
    return sorted(found)


def published(api: Api) -> list[str]:
    """Return the addresses in the EndpointSlice."""
    meta = {"name": "kubernetes", "namespace": "default"}
    document = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": meta}
    item = api.find(bootstrap.request_for(api, document, "get"))
    endpoints: list[dict[str, Any]] = (item.document().get("endpoints") or []) if item else []
    return sorted(address for each in endpoints for address in each.get("addresses") or ())
