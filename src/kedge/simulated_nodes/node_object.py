"""The Node objects of simulated nodes. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from kedge import KUBERNETES
from kedge.api.coordination_v1.lease import Lease, LeaseSpec
from kedge.api.core_v1.node_types import (
    DECLARED_FEATURES,
    SIMULATED,
    SIMULATED_VALUE,
    Node,
    NodeAddress,
    NodeCondition,
    NodeSpec,
    NodeStatus,
    NodeSystemInfo,
    Taint,
)
from kedge.api.model import ObjectMeta, OwnerReference
from kedge.machinery.durations import format_micro_time, format_time
from kedge.machinery.quantity import Quantity

RESOURCES: Final = {
    "cpu": Quantity.parse("32"),
    "memory": Quantity.parse("256Gi"),
    "ephemeral-storage": Quantity.parse("1Ti"),
    "pods": Quantity.parse("110"),
}
"""The resources of a node that names no others."""
TAINT: Final = Taint(key=SIMULATED, value=SIMULATED_VALUE, effect="NoSchedule")
LEASES_NAMESPACE: Final = "kube-node-lease"
LEASE_SECONDS: Final = 40
RUNTIME: Final = "kedge-simulation://1"
ARCHITECTURE: Final = "amd64"
"""The most common one, also on a machine with another one."""
_UNKNOWN: Final = "Unknown"
_CONDITIONS: Final = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "the node is simulated"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "the node is simulated"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "the node is simulated"),
    ("Ready", "True", "KubeletReady", "the node is simulated"),
)


def node_name(number: int) -> str:
    """Return the name of a node that `--simulated-nodes` asks for, counted from one."""
    return f"simulated-{number}"


def new_node(number: int, resources: Mapping[str, Quantity], taints: Sequence[Taint]) -> Node:
    """Return a node that `--simulated-nodes` asks for, without its status."""
    name = node_name(number)
    meta = ObjectMeta(
        name=name,
        labels={
            "kubernetes.io/arch": ARCHITECTURE,
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            SIMULATED: SIMULATED_VALUE,
        },
    )
    amounts = {**RESOURCES, **resources}
    return Node(
        metadata=meta,
        spec=NodeSpec(taints=list(taints)),
        status=NodeStatus(capacity=amounts, allocatable=amounts),
    )


def reported_status(node: Node, address: str, now: datetime) -> NodeStatus:
    """Return the status of a node, completed by everything that it lacks.

    A condition that says something is left alone: a test may have set it. Controllers set those of
    a silent node to Unknown, and the node itself sets them right.
    """
    status, moment = node.status, format_time(now)
    known = {each.type: each for each in status.conditions}
    missing = [
        NodeCondition(
            type=type_,
            status=value,
            reason=reason,
            message=message,
            lastHeartbeatTime=moment,
            lastTransitionTime=moment,
        )
        for type_, value, reason, message in _CONDITIONS
        if type_ not in known or known[type_].status == _UNKNOWN
    ]
    if missing:
        changed = {each.type for each in missing}
        kept = [each for each in status.conditions if each.type not in changed]
        status = replace(status, conditions=[*kept, *missing])
    if not status.addresses:
        hostname = NodeAddress(type="Hostname", address=node.metadata.name)
        internal = NodeAddress(type="InternalIP", address=address)
        status = replace(status, addresses=[internal, hostname])
    if not status.capacity:
        allocatable = status.allocatable or RESOURCES
        status = replace(status, capacity={**RESOURCES, **allocatable}, allocatable=allocatable)
    if not status.nodeInfo.kubeletVersion:
        status = replace(status, nodeInfo=_info(node.metadata.name))
    if not status.declaredFeatures:
        status = replace(status, declaredFeatures=[*DECLARED_FEATURES])
    return status


def _info(name: str) -> NodeSystemInfo:
    return NodeSystemInfo(
        machineID=name,
        systemUUID=name,
        bootID=name,
        kernelVersion="0",
        osImage="simulated",
        containerRuntimeVersion=RUNTIME,
        kubeletVersion=f"v{KUBERNETES}+kedge",
        operatingSystem="linux",
        architecture=ARCHITECTURE,
    )


def address_of(node: Node) -> str:
    """Return the address that a node has already; empty if it has none."""
    return next((each.address for each in node.status.addresses if each.type == "InternalIP"), "")


def new_lease(node: Node, now: datetime) -> Lease:
    """Return the lease of a node."""
    name = node.metadata.name
    owner = OwnerReference(apiVersion="v1", kind="Node", name=name, uid=node.metadata.uid)
    meta = ObjectMeta(name=name, namespace=LEASES_NAMESPACE, ownerReferences=[owner])
    spec = LeaseSpec(
        holderIdentity=name, leaseDurationSeconds=LEASE_SECONDS, renewTime=format_micro_time(now)
    )
    return Lease(metadata=meta, spec=spec)
