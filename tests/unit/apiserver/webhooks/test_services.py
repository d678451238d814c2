"""Which address a webhook's service is dialled at."""

from typing import Any

import pytest

from kedge.apiserver.webhooks.services import Resolver
from kedge.machinery.errors import StatusError
from kedge.testing.local_server import LocalServer

SERVICES = "/api/v1/namespaces/default/services"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
ENDPOINTS = "/api/v1/namespaces/default/endpoints"


async def serve(server: LocalServer, **spec: Any) -> Resolver:
    spec = {"ports": [{"name": "https", "port": 443}]} | spec
    await server.post(SERVICES, {"metadata": {"name": "hook"}, "spec": spec})
    return Resolver(server.app.api.cache)


def slice_of(*endpoints: dict[str, Any], service: str = "hook") -> dict[str, Any]:
    labels = {"kubernetes.io/service-name": service}
    return {
        "metadata": {"generateName": "s-", "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 80}, {"name": "https", "port": 8443}],
        "endpoints": list(endpoints),
    }


def unavailable(resolver: Resolver, port: int = 443) -> str:
    with pytest.raises(StatusError) as error:
        resolver("default", "hook", port)
    return error.value.message


async def test_ready_endpoint_is_dialled_at_the_port_of_that_name(server: LocalServer) -> None:
    resolver = await serve(server)
    starting = {"addresses": ["10.0.0.2"], "conditions": {"ready": False}}
    await server.post(SLICES, slice_of(starting, {"addresses": ["10.0.0.1"]}))
    await server.post(SLICES, slice_of({"addresses": ["10.0.0.9"]}, service="other"))
    assert {resolver("default", "hook", 443) for _ in range(20)} == {("10.0.0.1", 8443)}


async def test_older_form_of_endpoints_is_looked_at_too(server: LocalServer) -> None:
    resolver = await serve(server)
    subset = {"addresses": [{"ip": "10.0.0.3"}], "ports": [{"name": "https", "port": 9443}]}
    await server.post(ENDPOINTS, {"metadata": {"name": "hook"}, "subsets": [subset]})
    assert resolver("default", "hook", 443) == ("10.0.0.3", 9443)


async def test_external_name_is_dialled_as_it_is(server: LocalServer) -> None:
    resolver = await serve(server, type="ExternalName", externalName="hook.example", ports=[])
    assert resolver("default", "hook", 443) == ("hook.example", 443)


async def test_nothing_to_dial_is_said_in_upstreams_words(server: LocalServer) -> None:
    resolver = Resolver(server.app.api.cache)
    assert unavailable(resolver) == 'service "hook" not found'
    await serve(server)
    assert unavailable(resolver) == 'no endpoints available for service "hook"'
    assert unavailable(resolver, 444) == 'no service port 444 found for service "hook"'
