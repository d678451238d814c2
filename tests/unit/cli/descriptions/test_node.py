"""Nodes, described."""

from datetime import UTC, datetime
from typing import Any

from kedge.cli.descriptions.node import describe, roles, taint
from kedge.cli.descriptions.parts import RelatedObjects

NODE: dict[str, Any] = {
    "metadata": {"name": "one", "creationTimestamp": "2030-01-01T00:00:00Z"},
    "status": {
        "allocatable": {"cpu": "2", "memory": "1Gi", "pods": "110", "example.com/dev": "4"},
        "addresses": [{"type": "InternalIP", "address": "10.0.0.9"}],
        "conditions": [{"type": "Ready", "status": "True", "reason": "Up", "message": "well"}],
    },
}


def pod(name: str, **resources: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "n", "creationTimestamp": "2030-01-01T00:00:00Z"},
        "spec": {"containers": [{"name": "c", "resources": resources}]},
    }


def told(**about: Any) -> list[str]:
    now = datetime(2030, 1, 1, 0, 1, tzinfo=UTC)
    text = describe(NODE, RelatedObjects(now=now, events=[], **about))
    return [" ".join(line.split()) for line in text.splitlines()]


def test_how_much_of_a_node_is_spoken_for() -> None:
    pods = [
        pod("a", requests={"cpu": "250m"}, limits={"cpu": "1", "example.com/dev": "1"}),
        pod("b", requests={"cpu": "250m", "memory": "256Mi"}),
    ]
    lines = told(pods=pods)
    assert "Non-terminated Pods: (2 in total)" in lines
    assert "n a 250m (12%) 1 (50%) 0 (0%) 0 (0%) 60s" in lines
    assert "cpu 500m (25%) 1 (50%)" in lines
    assert "memory 256Mi (25%) 0 (0%)" in lines
    assert "ephemeral-storage 0 (0%) 0 (0%)" in lines
    assert "example.com/dev 0 1" in lines


def test_pods_that_may_not_be_seen_are_not_said_to_be_none() -> None:
    assert "Pods: not authorized" in told()


def test_the_sign_of_life_is_told() -> None:
    lease = {"spec": {"holderIdentity": "one", "renewTime": "2030-01-01T00:00:59.000000Z"}}
    lines = told(lease=lease, pods=[])
    assert "HolderIdentity: one" in lines
    assert "AcquireTime: <unset>" in lines
    assert "Lease: <none>" in told(pods=[])


def test_conditions_and_addresses_are_told() -> None:
    lines = told(pods=[])
    assert "Ready True <unset> <unset> Up well" in lines
    assert "InternalIP: 10.0.0.9" in lines


def test_roles_are_found_in_labels_and_taints_written_as_kubectl_takes_them() -> None:
    labels = {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "edge", "a": "b"}
    assert roles(labels) == ["edge", "worker"]
    assert taint({"key": "k", "value": "v", "effect": "NoSchedule"}) == "k=v:NoSchedule"
    assert taint({"key": "k", "effect": "NoSchedule"}) == "k:NoSchedule"
