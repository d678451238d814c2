from typing import Any

import pytest

from kedge.api.core_v1.service import RESOURCE
from kedge.api.quota.services import ServiceQuotaMeter


@pytest.mark.parametrize(
    ("spec", "node_ports", "load_balancers"),
    [
        ({"type": "ClusterIP"}, "0", "0"),
        ({"type": "NodePort"}, "2", "0"),
        ({"type": "LoadBalancer"}, "2", "1"),
        ({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False}, "1", "1"),
    ],
)
def test_a_service_takes_what_its_type_gives_it(
    spec: dict[str, Any], node_ports: str, load_balancers: str
) -> None:
    ports = [{"port": 80, "nodePort": 30080}, {"port": 81}]
    service = RESOURCE.from_document({"metadata": {"name": "s"}, "spec": spec | {"ports": ports}})
    usage = {
        name: str(amount) for name, amount in ServiceQuotaMeter().measure(service).usage.items()
    }
    assert usage == {
        "services": "1",
        "count/services": "1",
        "services.nodeports": node_ports,
        "services.loadbalancers": load_balancers,
    }


def test_services_are_counted_under_their_own_names() -> None:
    names = ["services", "count/services", "services.nodeports", "services.loadbalancers"]
    assert ServiceQuotaMeter().names([*names, "pods", "services.other"]) == {*names}


def test_a_service_must_specify_nothing() -> None:
    service = RESOURCE.from_document({"metadata": {"name": "s"}})
    assert ServiceQuotaMeter().missing(service, ["services.nodeports"]) == ""
