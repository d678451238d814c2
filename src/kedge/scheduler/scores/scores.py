"""The list of scores and their weights."""

from typing import Final

from kedge.scheduler.scores import (
    balanced_allocation,
    dynamic_resources,
    inter_pod_affinity,
    least_allocated,
    node_affinity,
    node_usage,
    pod_topology_spread,
    taint_toleration,
)
from kedge.scheduler.scores.score import Score

SCORES: Final = (
    Score("TaintToleration", 3, taint_toleration.rate),
    Score("NodeAffinity", 2, node_affinity.rate),
    Score("NodeResourcesFit", 1, least_allocated.rate),
    Score("PodTopologySpread", 2, pod_topology_spread.rate),
    Score("InterPodAffinity", 2, inter_pod_affinity.rate),
    Score("DynamicResources", 2, dynamic_resources.rate),
    Score("NodeResourcesBalancedAllocation", 1, balanced_allocation.rate),
    Score("NodeUsage", 1, node_usage.rate),
)
