"""The quota usage of a Service: its count, node ports and load balancer."""

from collections.abc import Iterable

from kedge.api.core_v1.service_types import Service
from kedge.api.quota.count import count_name
from kedge.api.quota.measure import ONE, ZERO, QuotaMeasure
from kedge.machinery.quantity import Quantity

_COUNT = count_name("", "services")
_SERVICES = "services"
_NODE_PORTS = "services.nodeports"
_LOAD_BALANCERS = "services.loadbalancers"
_NAMES = frozenset((_COUNT, _SERVICES, _NODE_PORTS, _LOAD_BALANCERS))
_NO_SCOPES: frozenset[str] = frozenset()


class ServiceQuotaMeter:
    """The meter of services."""

    known = _NO_SCOPES
    looks = True

    def names(self, hard: Iterable[str]) -> frozenset[str]:
        return _NAMES.intersection(hard)

    def measure(self, obj: Service) -> QuotaMeasure:
        balanced = obj.spec.type == "LoadBalancer"
        usage = {
            _COUNT: ONE,
            _SERVICES: ONE,
            _NODE_PORTS: Quantity.from_value(node_ports(obj)),
            _LOAD_BALANCERS: ONE if balanced else ZERO,
        }
        return QuotaMeasure(usage, {})

    def missing(self, obj: Service, names: Iterable[str]) -> str:
        return ""


def node_ports(service: Service) -> int:
    """How many node ports the service has or is about to be given."""
    spec = service.spec
    if spec.type == "LoadBalancer" and spec.allocateLoadBalancerNodePorts is False:
        return sum(1 for port in spec.ports if port.nodePort)
    return len(spec.ports) if spec.type in ("NodePort", "LoadBalancer") else 0
