"""What load balancers are told about the endpoints of a node."""

import json
from typing import Any

import pytest

from kedge.api.core_v1 import service
from kedge.api.core_v1.service_types import Service
from kedge.api.discovery_v1 import endpoint_slice
from kedge.api.discovery_v1.endpoint_slice import EndpointSlice
from kedge.node.services.health_checks import ServiceHealthCheck, answer, health_check
from kedge.node.services.service_ports import NodePlace

HERE = NodePlace("here")


def balanced(**spec: Any) -> Service:
    whole = {
        "type": "LoadBalancer",
        "externalTrafficPolicy": "Local",
        "healthCheckNodePort": 30123,
        "ports": [{"port": 80}],
        **spec,
    }
    found: Service = service.RESOURCE.from_document(
        {"metadata": {"name": "web", "namespace": "shop"}, "spec": whole}
    )
    return found


def slice_of(*endpoints: dict[str, Any]) -> EndpointSlice:
    found: EndpointSlice = endpoint_slice.RESOURCE.from_document(
        {"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": list(endpoints)}
    )
    return found


def test_ready_endpoints_of_the_node_are_counted_once() -> None:
    one = {"addresses": ["10.0.0.1"], "nodeName": "here"}
    far = {"addresses": ["10.0.0.2"], "nodeName": "there"}
    starting = {"addresses": ["10.0.0.3"], "nodeName": "here", "conditions": {"ready": False}}
    slices = [slice_of(one, far, starting), slice_of(one)]
    assert health_check(balanced(), slices, HERE) == ServiceHealthCheck("shop", "web", 30123, 1)
    assert health_check(balanced(), [], HERE) == ServiceHealthCheck("shop", "web", 30123, 0)


@pytest.mark.parametrize(
    "spec", [{"type": "NodePort"}, {"externalTrafficPolicy": "Cluster"}, {"healthCheckNodePort": 0}]
)
def test_other_services_have_no_health_check(spec: dict[str, Any]) -> None:
    assert health_check(balanced(**spec), [], HERE) is None


def test_the_answer_is_that_of_kube_proxy() -> None:
    response = answer(ServiceHealthCheck("shop", "web", 30123, 2))
    assert (response.status, response.content_type) == (200, "application/json")
    assert ("X-Load-Balancing-Endpoint-Weight", "2") in response.headers
    assert isinstance(response.body, bytes)
    assert json.loads(response.body) == {
        "service": {"namespace": "shop", "name": "web"},
        "localEndpoints": 2,
        "serviceProxyHealthy": True,
    }
    assert answer(ServiceHealthCheck("shop", "web", 30123, 0)).status == 503
