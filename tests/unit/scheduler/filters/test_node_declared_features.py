from typing import Any

import pytest
from msgspec.structs import replace

from kedge.api.core_v1.node_types import DECLARED_FEATURES
from kedge.api.core_v1.pod import pod
from kedge.scheduler.cycle import PreparedFilters
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.filters.node_declared_features import needed_features
from kedge.testing.scheduling import cluster, new_node

RESTART_ALL = {
    "name": "a",
    "restartPolicy": "Never",
    "restartPolicyRules": [{"action": "RestartAllContainers"}],
}
RESTART = {**RESTART_ALL, "restartPolicyRules": [{"action": "Restart"}]}
FEATURE = "RestartAllContainersOnContainerExits"


def demanding(**spec: Any) -> PodDemand:
    return PodDemand(pod.RESOURCE.from_document({"metadata": {"name": "p"}, "spec": spec}))


@pytest.mark.parametrize(
    ("spec", "needed"),
    [
        ({"containers": [{"name": "a"}]}, []),
        ({"containers": [RESTART]}, []),
        ({"containers": [{"name": "b"}, RESTART_ALL]}, [FEATURE]),
        ({"containers": [{"name": "b"}], "initContainers": [RESTART_ALL]}, [FEATURE]),
        ({"hostNetwork": True, "hostUsers": False}, ["UserNamespacesHostNetworkSupport"]),
        ({"hostNetwork": True, "hostUsers": True}, []),
        ({"hostNetwork": True}, []),
        ({"hostUsers": False}, []),
    ],
)
def test_features_that_a_pod_needs(spec: dict[str, Any], needed: list[str]) -> None:
    assert list(needed_features(demanding(**spec).pod.spec)) == needed


def test_only_nodes_that_declare_the_feature_fit() -> None:
    able = new_node("able")
    able = replace(able, status=replace(able.status, declaredFeatures=DECLARED_FEATURES))
    snapshot = cluster(able, new_node("old"))
    prepared = PreparedFilters(demanding(containers=[RESTART_ALL]), snapshot)
    assert prepared.refuses(snapshot.nodes["able"]) is None
    found = prepared.refuses(snapshot.nodes["old"])
    assert found is not None
    name, rejection = found
    assert name == "NodeDeclaredFeatures"
    assert rejection == (("node(s) didn't match Pod's required features",), True, False)
