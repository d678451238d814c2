"""The list of filters, in order: the first that rejects a node gives the reason."""

from typing import Final

from kedge.scheduler.filters import (
    dynamic_resources,
    inter_pod_affinity,
    node_affinity,
    node_declared_features,
    node_name,
    node_ports,
    node_resources_fit,
    node_unschedulable,
    node_volume_limits,
    pod_topology_spread,
    taint_toleration,
    volume_binding,
    volume_restrictions,
    volume_zone,
)
from kedge.scheduler.filters.filter import Filter

NODE_UNSCHEDULABLE: Final = "NodeUnschedulable"
NODE_NAME: Final = "NodeName"
TAINT_TOLERATION: Final = "TaintToleration"
NODE_AFFINITY: Final = "NodeAffinity"
NODE_PORTS: Final = "NodePorts"
NODE_RESOURCES_FIT: Final = "NodeResourcesFit"
VOLUME_RESTRICTIONS: Final = "VolumeRestrictions"
NODE_VOLUME_LIMITS: Final = "NodeVolumeLimits"
VOLUME_ZONE: Final = "VolumeZone"
VOLUME_BINDING: Final = "VolumeBinding"
POD_TOPOLOGY_SPREAD: Final = "PodTopologySpread"
INTER_POD_AFFINITY: Final = "InterPodAffinity"
DYNAMIC_RESOURCES: Final = "DynamicResources"
NODE_DECLARED_FEATURES: Final = "NodeDeclaredFeatures"

FILTERS: Final = (
    Filter(NODE_UNSCHEDULABLE, node_unschedulable.prepare),
    Filter(NODE_NAME, node_name.prepare),
    Filter(TAINT_TOLERATION, taint_toleration.prepare),
    Filter(NODE_AFFINITY, node_affinity.prepare),
    Filter(NODE_PORTS, node_ports.prepare),
    Filter(NODE_RESOURCES_FIT, node_resources_fit.prepare),
    Filter(VOLUME_RESTRICTIONS, volume_restrictions.prepare),
    Filter(NODE_VOLUME_LIMITS, node_volume_limits.prepare),
    Filter(VOLUME_BINDING, volume_binding.prepare),
    Filter(VOLUME_ZONE, volume_zone.prepare),
    Filter(POD_TOPOLOGY_SPREAD, pod_topology_spread.prepare),
    Filter(INTER_POD_AFFINITY, inter_pod_affinity.prepare),
    Filter(DYNAMIC_RESOURCES, dynamic_resources.prepare),
    Filter(NODE_DECLARED_FEATURES, node_declared_features.prepare),
)
