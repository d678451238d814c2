"""Addresses in the status of Ingresses."""

from typing import Any

import msgspec
import pytest

from kedge.gateway.ingress_status import IngressStatusWriter, addresses
from kedge.gateway.objects import IngressInfo
from kedge.gateway.run import INGRESSES
from kedge.machinery.errors import not_found
from kedge.settings.published_port import PublishedPort

PORTS = [
    PublishedPort("127.0.0.1", 39000, 80),
    PublishedPort("127.0.0.1", 443, 443),
    PublishedPort("10.0.0.1", 80, 80),
]
SHOWN = [
    {
        "ip": "127.0.0.1",
        "ports": [{"port": 39000, "protocol": "TCP"}, {"port": 443, "protocol": "TCP"}],
    },
    {"ip": "10.0.0.1", "ports": [{"port": 80, "protocol": "TCP"}]},
]


class FakeClient:
    """Records patches."""

    def __init__(self, *, missing: bool = False) -> None:
        self.patches: list[Any] = []
        self._missing = missing

    async def patch(
        self, resource: Any, name: str, patch: Any, namespace: str, **more: Any
    ) -> None:
        if self._missing:
            raise not_found("networking.k8s.io", "ingresses", name)
        self.patches.append((resource.plural, namespace, name, patch, more["subresource"]))


def ingress(**status: Any) -> IngressInfo:
    document = {"metadata": {"name": "i", "namespace": "n"}, "status": status}
    return msgspec.convert(document, IngressInfo)


async def test_a_status_is_written_once() -> None:
    client = FakeClient()
    writer = IngressStatusWriter(client, INGRESSES, addresses(PORTS))  # type: ignore[arg-type]
    await writer.write(ingress())
    wanted = {"status": {"loadBalancer": {"ingress": SHOWN}}}
    assert client.patches == [("ingresses", "n", "i", wanted, "status")]
    await writer.write(ingress(loadBalancer={"ingress": SHOWN}))
    assert len(client.patches) == 1


async def test_an_ingress_that_is_gone_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    client = FakeClient(missing=True)
    writer = IngressStatusWriter(client, INGRESSES, addresses(PORTS))  # type: ignore[arg-type]
    await writer.write(ingress())
    assert client.patches == []
    assert not caplog.records
