"""Why a pod keeps its node from being removed, by the rules of cluster-autoscaler."""

from collections.abc import Sequence
from typing import Final

from kedge.api import label_selector
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.policy_v1.pod_disruption_budget import PodDisruptionBudget

SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
_SAFE_VOLUMES: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
_SYSTEM: Final = "kube-system"


def obstacle(pod: Pod, budgets: Sequence[PodDisruptionBudget]) -> str:
    """Return why a pod must not be evicted; nothing if it may be."""
    annotations = pod.metadata.annotations
    protecting = [each for each in budgets if _protects(each, pod)]
    if annotations.get(SAFE_TO_EVICT) == "false":
        return "not safe to evict by its annotation"
    if any(each.status.disruptionsAllowed < 1 for each in protecting):
        return "its PodDisruptionBudget allows no disruption"
    if annotations.get(SAFE_TO_EVICT) == "true":
        return ""
    if not any(each.controller for each in pod.metadata.ownerReferences):
        return "no controller would create it again"
    if pod.metadata.namespace == _SYSTEM and not protecting:
        return "a system pod without a PodDisruptionBudget"
    if volume := _local_volume(pod):
        return f"volume {volume} is local data"
    return ""


def _protects(budget: PodDisruptionBudget, pod: Pod) -> bool:
    if budget.metadata.namespace != pod.metadata.namespace:
        return False
    return label_selector.matches(budget.spec.selector, pod.metadata.labels)


def _local_volume(pod: Pod) -> str:
    """Return the first volume that is lost with the node and is not declared safe to lose."""
    safe = pod.metadata.annotations.get(_SAFE_VOLUMES, "").split(",")
    for volume in pod.spec.volumes:
        is_disk = volume.emptyDir is not None and volume.emptyDir.medium != "Memory"
        if (is_disk or volume.hostPath is not None) and volume.name not in safe:
            return volume.name
    return ""
