"""NodeState: one node and its pods, with the sums that filters and scores use."""

from collections.abc import Mapping
from typing import Final

from kedge.api.core_v1.node_types import Node, Taint
from kedge.api.core_v1.resource_names import CPU, MEMORY, PODS
from kedge.machinery.quantity import Quantity
from kedge.scheduler.demand import HostPort, PodDemand, units
from kedge.scheduler.load import Load

ANY_ADDRESS: Final = "0.0.0.0"
MEMO_LIMIT: Final = 64


class NodeState:
    """A node and its pods, updated with every pod that is added or removed."""

    __slots__ = (
        "allocatable",
        "assumed_cpu",
        "assumed_memory",
        "balanced",
        "free_cpu",
        "free_memory",
        "hard_taints",
        "labels",
        "least",
        "load",
        "name",
        "node",
        "pods",
        "pods_allowed",
        "ports",
        "requested",
        "soft_taints",
        "unschedulable",
    )

    def __init__(self, node: Node) -> None:
        self.pods: dict[str, PodDemand] = {}
        self.requested: dict[str, int] = {}
        self.ports: dict[HostPort, int] = {}
        """How many pods hold each port."""
        self.assumed_cpu = 0
        self.assumed_memory = 0
        self.least: dict[tuple[int, int], int] = {}
        """Scores by what a pod asks for, true until the node changes; likewise `balanced`."""
        self.balanced: dict[tuple[int, int], int] = {}
        self.load: Load | None = None
        """The cached load, cleared by every change."""
        self.renew(node)

    def renew(self, node: Node) -> None:
        """The node itself is different."""
        self.node = node
        self.name = node.metadata.name
        self.labels: Mapping[str, str] = node.metadata.labels
        self.allocatable = amounts(node.status.allocatable)
        self.pods_allowed = self.allocatable.get(PODS, 0)
        self.unschedulable = node.spec.unschedulable
        taints = node.spec.taints
        self.hard_taints: list[Taint] = [t for t in taints if t.effect != "PreferNoSchedule"]
        self.soft_taints: list[Taint] = [t for t in taints if t.effect == "PreferNoSchedule"]
        self._settle()

    def add(self, demand: PodDemand) -> None:
        self.pods[demand.uid] = demand
        self._count(demand, 1)

    def remove(self, demand: PodDemand) -> None:
        del self.pods[demand.uid]
        self._count(demand, -1)

    def free(self, resource: str) -> int:
        """Return the allocatable amount of a resource that no pod has requested."""
        return self.allocatable.get(resource, 0) - self.requested.get(resource, 0)

    def has_free(self, port: HostPort) -> bool:
        """Whether a host port is free; a port held on every address is held on each."""
        if port.address != ANY_ADDRESS:
            return port not in self.ports and port._replace(address=ANY_ADDRESS) not in self.ports
        return not any(
            held.protocol == port.protocol and held.number == port.number for held in self.ports
        )

    def _count(self, demand: PodDemand, sign: int) -> None:
        for name, amount in demand.requests.items():
            self.requested[name] = self.requested.get(name, 0) + sign * amount
        self.assumed_cpu += sign * demand.assumed_cpu
        self.assumed_memory += sign * demand.assumed_memory
        for port in demand.ports:
            if held := self.ports.get(port, 0) + sign:
                self.ports[port] = held
            else:
                del self.ports[port]
        self._settle()

    def _settle(self) -> None:
        self.free_cpu = self.free(CPU)
        self.free_memory = self.free(MEMORY)
        self.least.clear()
        self.balanced.clear()
        self.load = None


def amounts(quantities: Mapping[str, Quantity]) -> dict[str, int]:
    """Amounts as whole numbers."""
    return {name: units(name, amount) for name, amount in quantities.items()}
