"""NodeDeclaredFeatures: a node must declare the features that a pod needs to run."""

from collections.abc import Iterator

from kedge.api.core_v1.node_types import HOST_NETWORK_OF_USERS, RESTART_ALL_CONTAINERS
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.filters.filter import NodeRejection, Prepared
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.snapshot import Snapshot

REFUSAL = NodeRejection(("node(s) didn't match Pod's required features",), final=True)


def prepare(demand: PodDemand, snapshot: Snapshot) -> Prepared:
    needed = frozenset(needed_features(demand.pod.spec))
    if not needed:
        return None

    def check(node: NodeState) -> NodeRejection | None:
        return None if needed.issubset(node.node.status.declaredFeatures) else REFUSAL

    return check


def needed_features(spec: PodSpec) -> Iterator[str]:
    """Yield the features without which a node does not run a pod as its spec says."""
    containers = (*spec.containers, *spec.initContainers)
    rules = (rule for each in containers for rule in each.restartPolicyRules)
    if any(rule.action == "RestartAllContainers" for rule in rules):
        yield RESTART_ALL_CONTAINERS
    if spec.hostNetwork and spec.hostUsers is False:
        yield HOST_NETWORK_OF_USERS
