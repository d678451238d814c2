"""ServerEndpoints: the Service `kubernetes` leads to all servers that are alive."""

import logging
import re
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any, Final

from kedge.apiserver import bootstrap
from kedge.apiserver.api import Api
from kedge.apiserver.several.membership import ServerMembership
from kedge.machinery.errors import StatusError
from kedge.storage.store import StoreError

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 2.0
_PORT: Final = re.compile("[1-9][0-9]{0,4}")


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
        hosts, port = addresses(self._host, self._port, others)
        if (hosts, port) != published(self._api):
            await bootstrap.publish(self._api, hosts, port)


def addresses(host: str, port: int, others: Sequence[str]) -> tuple[list[str], int]:
    """Return the hosts of servers and their port, as one EndpointSlice can have them: those of the
    address family and the port that most servers have. All servers choose the same, and none
    replaces the choice of another. `others` are HOST PORT, or empty for servers that others cannot
    reach."""
    groups: dict[tuple[bool, int], set[str]] = {(":" in host, port): {host}}
    for each in others:
        other, _, its_port = each.partition(" ")
        # Leases are objects that others may write, too.
        if _is_address(other) and _PORT.fullmatch(its_port):
            groups.setdefault((":" in other, int(its_port)), set()).add(other)
    (_, chosen), hosts = max(groups.items(), key=lambda group: (len(group[1]), *group[0]))
    return sorted(hosts), chosen


def published(api: Api) -> tuple[list[str], int]:
    """Return the addresses and the port in the EndpointSlice."""
    meta = {"name": "kubernetes", "namespace": "default"}
    document = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": meta}
    item = api.find(bootstrap.request_for(api, document, "get"))
    slice_: dict[str, Any] = item.document() if item else {}
    endpoints = slice_.get("endpoints") or ()
    ports = [each.get("port") or 0 for each in slice_.get("ports") or ()]
    hosts = sorted(address for each in endpoints for address in each.get("addresses") or ())
    return hosts, ports[0] if ports else 0


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
