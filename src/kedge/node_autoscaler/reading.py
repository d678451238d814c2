"""Read the state of the cluster from the API."""

from collections.abc import Iterable, Mapping
from typing import Final

from kedge.api.core_v1 import namespace, node, persistent_volume_claim
from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.pod import pod
from kedge.api.metrics_v1alpha1 import node as node_usage
from kedge.api.metrics_v1alpha1.windows import Metrics
from kedge.api.policy_v1 import pod_disruption_budget
from kedge.api.resource_v1 import device_class, resource_claim, resource_slice
from kedge.api.resource_v1.extended_resources import asks_for_extended
from kedge.api.storage_v1 import csi, persistent_volume, storage_class
from kedge.client.client import Client
from kedge.client.view import View, sketches
from kedge.metrics.windows import MAIN
from kedge.node_autoscaler.cluster_state import ClusterState
from kedge.node_autoscaler.node_devices import ClusterDevices
from kedge.scheduler.scheduler import NOT_ENDED
from kedge.scheduler.snapshot import PartialNamespace

_PODS: Final = "pods"
"""The system container that stands for all pods of a node."""


async def read_cluster(client: Client) -> ClusterState:
    """List everything that decisions need."""
    nodes = {each.metadata.name: each for each in (await client.list(node.RESOURCE)).items}
    measured = (await client.list(node_usage.RESOURCE)).items
    volumes = View(persistent_volume.VOLUMES, persistent_volume.decode)
    classes = View(storage_class.CLASSES, storage_class.decode)
    spaces = sketches(namespace.RESOURCE, PartialNamespace)
    pods = (await client.list(pod.RESOURCE, fields=NOT_ENDED)).items
    return ClusterState(
        nodes=nodes,
        pods=pods,
        budgets=(await client.list(pod_disruption_budget.RESOURCE)).items,
        usage=shares(nodes, measured),
        namespaces=(await client.list_as(spaces)).items,
        claims=(await client.list(persistent_volume_claim.RESOURCE)).items,
        volumes=(await client.list_as(volumes)).items,
        classes=(await client.list_as(classes)).items,
        drivers=(await client.list_as(View(csi.DRIVERS, csi.decode_driver))).items,
        driver_nodes=(await client.list_as(View(csi.NODES, csi.decode_node))).items,
        capacities=(await client.list_as(View(csi.CAPACITIES, csi.decode_capacity))).items,
        devices=await _devices(client, pods),
    )


async def _devices(client: Client, pods: Iterable[pod.Pod]) -> ClusterDevices:
    """List claims, classes and devices, if a pod asks for any."""
    if not any(each.spec.resourceClaims or asks_for_extended(each) for each in pods):
        return ClusterDevices()
    return ClusterDevices(
        claims=(await client.list(resource_claim.RESOURCE)).items,
        classes=(await client.list(device_class.RESOURCE)).items,
        slices=(await client.list(resource_slice.RESOURCE)).items,
    )


def shares(nodes: Mapping[str, Node], measured: Iterable[node_usage.Node]) -> dict[str, float]:
    """Return the share of cpu or memory, whichever is greater, that the pods of each node used."""
    found = {}
    for each in measured:
        name = each.metadata.name
        pods = next((one for one in each.systemContainers if one.metadata.name == _PODS), None)
        if name not in nodes or pods is None:
            continue
        used = pods.metrics.get(MAIN, Metrics()).mean
        room = nodes[name].status.allocatable
        parts = [
            used[resource].nanos / room[resource].nanos
            for resource in ("cpu", "memory")
            if resource in used and room.get(resource)
        ]
        if parts:
            found[name] = max(parts)
    return found
