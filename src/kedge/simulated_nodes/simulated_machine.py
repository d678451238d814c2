"""One simulated node: its object, its address and its client."""

from kedge.api.core_v1 import simulation
from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.simulation import Annotations
from kedge.client.client import Client
from kedge.simulated_nodes.pod_usage import ContainerUsage


class SimulatedMachine:
    """A node as last seen. The client acts as the node, so that faults hit it alone."""

    __slots__ = (
        "address",
        "annotations",
        "client",
        "has_news",
        "is_silent",
        "node",
        "reported",
        "usage",
    )

    def __init__(self, node: Node, address: str, client: Client, now: float) -> None:
        self.address = address
        self.client = client
        self.is_silent = False
        """Whether its last request did not reach the server."""
        self.has_news = True
        """Whether the usage of a pod has begun, ended or changed since the last report."""
        self.reported = 0
        """The tick of the last report."""
        self.usage = ContainerUsage()
        """Its usage without its pods."""
        self.annotations: Annotations = ()
        self.update(node, now)

    @property
    def name(self) -> str:
        return self.node.metadata.name

    def update(self, node: Node, now: float) -> None:
        """Take over a change of the object."""
        self.node = node
        self.annotations = simulation.own(node.metadata.annotations)
        cpu, memory = simulation.node_usage(self.annotations)
        self.usage = self.usage.changed(now, self.usage.since or now, cpu, memory)
