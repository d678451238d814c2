"""Which node ports Services get."""

from random import Random
from typing import Any

import pytest

from kedge.api.core_v1.service_types import ServicePort, ServiceSpec
from kedge.apiserver.allocation.node_ports import (
    PortAllocation,
    first_ports,
    later_ports,
    node_ports,
)
from kedge.machinery.errors import StatusError


def allocation(*taken: int, ports: range = range(30000, 32768)) -> PortAllocation:
    return PortAllocation("web", ports, taken.__contains__, Random(1))


def spec(*ports: tuple[int, str, int], type_: str = "NodePort", **fields: Any) -> ServiceSpec:
    made = [ServicePort(port=port, protocol=proto, nodePort=node) for port, proto, node in ports]
    return ServiceSpec(type=type_, ports=made, **fields)


def numbers(given: ServiceSpec) -> list[int]:
    return [port.nodePort for port in given.ports]


def test_ports_come_from_the_upper_band() -> None:
    made = first_ports(spec((80, "TCP", 0), (81, "TCP", 0)), allocation())
    assert len(set(numbers(made))) == 2
    assert min(numbers(made)) >= 30086


def test_protocols_of_one_port_share_a_node_port() -> None:
    both = numbers(first_ports(spec((53, "UDP", 0), (53, "TCP", 0)), allocation()))
    assert both[0] == both[1] != 0
    asked = first_ports(spec((53, "UDP", 0), (53, "TCP", 30053)), allocation())
    assert numbers(asked) == [30053, 30053]
    apart = first_ports(spec((53, "UDP", 30054), (53, "TCP", 30053)), allocation())
    assert numbers(apart) == [30054, 30053]


def test_cluster_services_get_none() -> None:
    assert numbers(first_ports(spec((80, "TCP", 0), type_="ClusterIP"), allocation())) == [0]


def test_load_balancers_may_do_without() -> None:
    fields: dict[str, Any] = {"type_": "LoadBalancer", "allocateLoadBalancerNodePorts": False}
    made = first_ports(spec((80, "TCP", 0), (81, "TCP", 30081), **fields), allocation())
    assert numbers(made) == [0, 30081]
    changed = later_ports(spec((80, "TCP", 0), (81, "TCP", 30081), **fields), made, allocation())
    assert numbers(changed) == [0, 30081]


def test_the_range_can_be_full() -> None:
    with pytest.raises(StatusError) as refused:
        first_ports(spec((80, "TCP", 0)), allocation(30000, ports=range(30000, 30001)))
    assert refused.value.code == 500
    assert "failed to allocate a nodePort: range is full" in str(refused.value)


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (30001, "spec.ports[0].nodePort: Invalid value: 30001: provided port is already allocated"),
        (80, "The range of valid ports is 30000-32767"),
    ],
)
def test_ports_that_are_refused(number: int, why: str) -> None:
    wanted = spec((80, "TCP", number))
    for allocate in (first_ports, lambda new, op: later_ports(new, spec(), op)):
        with pytest.raises(StatusError) as refused:
            allocate(wanted, allocation(30001))
        assert refused.value.code == 422
        assert why in str(refused.value)


def test_a_change_keeps_its_own_ports() -> None:
    old = spec((80, "TCP", 30100), (81, "TCP", 30101))
    new = spec((82, "TCP", 30100), (83, "TCP", 0))
    given = numbers(later_ports(new, old, allocation(30100, 30101)))
    assert given[0] == 30100
    assert given[1] not in (0, 30100, 30101)


def test_two_protocols_may_share_a_new_port_in_a_change() -> None:
    new = spec((80, "TCP", 30100), (80, "UDP", 30100))
    assert numbers(later_ports(new, spec(), allocation())) == [30100, 30100]


def test_a_duplicate_in_a_change_is_a_plain_error() -> None:
    new = spec((80, "TCP", 30100), (81, "TCP", 30100))
    with pytest.raises(StatusError, match=r"duplicate nodePort: \{TCP 30100\}") as refused:
        later_ports(new, spec(), allocation())
    assert refused.value.code == 500


def test_health_checks() -> None:
    local: dict[str, Any] = {"type_": "LoadBalancer", "externalTrafficPolicy": "Local"}
    made = first_ports(spec((80, "TCP", 0), **local), allocation())
    assert made.healthCheckNodePort not in (0, made.ports[0].nodePort)
    assert node_ports(made) == [made.ports[0].nodePort, made.healthCheckNodePort]
    kept = later_ports(made, made, allocation(*node_ports(made)))
    assert kept == made
    before = spec((80, "TCP", made.ports[0].nodePort), type_="LoadBalancer")
    assert later_ports(made, before, allocation()).healthCheckNodePort == made.healthCheckNodePort
    with pytest.raises(StatusError, match="failed to allocate requested HealthCheck NodePort"):
        first_ports(made, allocation(made.healthCheckNodePort))
