"""What is said of silent nodes."""

from typing import Any

from kedge.api.core_v1.node import RESOURCE
from kedge.api.core_v1.node_types import Node
from kedge.controllers.nodes.node_health import silent, zone_of

NOW = "2030-01-01T00:05:00Z"


def node(*conditions: dict[str, Any], **labels: str) -> Node:
    meta = {"name": "n", "labels": labels, "creationTimestamp": "2030-01-01T00:00:00Z"}
    return RESOURCE.from_document({"metadata": meta, "status": {"conditions": list(conditions)}})


def test_what_a_node_said_is_unknown_from_now_on() -> None:
    said = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2030-01-01T00:04:00Z"}
    network = {"type": "NetworkUnavailable", "status": "False"}
    first, second, *rest = silent(node(network, said), NOW).status.conditions
    assert (first.type, first.status) == ("NetworkUnavailable", "False")
    assert (second.status, second.reason) == ("Unknown", "NodeStatusUnknown")
    assert second.message == "Kubelet stopped posting node status."
    assert second.lastHeartbeatTime == "2030-01-01T00:04:00Z"
    assert second.lastTransitionTime == NOW
    assert [each.type for each in rest] == ["MemoryPressure", "DiskPressure", "PIDPressure"]
    assert {each.reason for each in rest} == {"NodeStatusNeverUpdated"}
    assert {each.message for each in rest} == {"Kubelet never posted node status."}
    assert {each.lastHeartbeatTime for each in rest} == {"2030-01-01T00:00:00Z"}


def test_silence_that_was_told_is_not_told_again() -> None:
    told = silent(node(), NOW)
    assert silent(told, "2031-01-01T00:00:00Z") == told


def test_a_zone_is_named_by_old_labels_too() -> None:
    new = {"topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": "z"}
    old = {f"failure-domain.beta.kubernetes.io/{key}": key[0] for key in ("region", "zone")}
    assert zone_of(node(**new)) == zone_of(node(**old)) == ("r", "z")
