"""The address in the status of every Ingress that the gateway serves."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from kedge.api.resource import Resource
from kedge.client.client import Client
from kedge.gateway.objects import IngressInfo, LoadBalancerAddress, LoadBalancerPort
from kedge.machinery.errors import StatusError
from kedge.settings.published_port import PublishedPort

log = logging.getLogger(__name__)

_MANAGER: Final = "kedge-gateway"


def addresses(ports: Iterable[PublishedPort]) -> tuple[LoadBalancerAddress, ...]:
    """Return the addresses and ports at which the gateway listens, as a status shows them."""
    found: dict[str, list[LoadBalancerPort]] = {}
    for each in ports:
        found.setdefault(each.address, []).append(LoadBalancerPort(each.port))
    return tuple(
        LoadBalancerAddress(ip=address, ports=tuple(ports)) for address, ports in found.items()
    )


class IngressStatusWriter:
    """Patches the status of Ingresses that do not have the addresses of the gateway."""

    def __init__(
        self,
        client: Client,
        resource: Resource[Any],
        wanted: Sequence[LoadBalancerAddress],
    ) -> None:
        self._client = client
        self._resource = resource
        self._wanted = tuple(wanted)
        self._document = [_document(each) for each in self._wanted]

    async def write(self, ingress: IngressInfo) -> None:
        if ingress.status.load_balancer.ingress == self._wanted:
            return
        meta = ingress.metadata
        patch = {"status": {"loadBalancer": {"ingress": self._document}}}
        try:
            await self._client.patch(
                self._resource,
                meta.name,
                patch,
                meta.namespace,
                subresource="status",
                field_manager=_MANAGER,
            )
        except StatusError as error:
            if error.code == 404:
                # The Ingress was deleted meanwhile.
                return
            # The next change of any Ingress tries again.
            log.warning("status not written ingress=%s error=%s", meta.key, error.message)


def _document(address: LoadBalancerAddress) -> dict[str, Any]:
    return {"ip": address.ip, "ports": [msgspec.to_builtins(each) for each in address.ports]}
