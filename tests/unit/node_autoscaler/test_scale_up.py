"""How many nodes are added, and for whom."""

from typing import Any

import pytest

from kedge.node_autoscaler.cluster_state import ClusterState
from kedge.node_autoscaler.scale_up import FULL, ScaleUp, pending, scale_up
from kedge.testing.node_autoscaler import node, pod

SPARE = ("node-2", "node-3")


def added(*pods: Any, starting: tuple[str, ...] = (), spare: Any = SPARE) -> ScaleUp:
    """The decision for a full node-1 and the pods given."""
    busy = pod("busy", "node-1", cpu="2")
    return scale_up(ClusterState({"node-1": node("node-1")}, [busy, *pods]), starting, spare)


def refusals(decision: ScaleUp) -> dict[str, str]:
    return {each.metadata.name: why for each, why in decision.refused}


def test_nothing_waits() -> None:
    assert added() == ScaleUp()


def test_a_pod_that_does_not_fit_adds_a_node() -> None:
    decision = added(pod("a"))
    assert decision.nodes == ("node-2",)
    assert [each.metadata.name for each in decision.pods] == ["a"]


def test_pods_share_a_new_node_as_far_as_it_goes() -> None:
    assert added(pod("a"), pod("b")).nodes == ("node-2",)
    assert added(pod("a"), pod("b"), pod("c")).nodes == ("node-2", "node-3")


def test_there_are_no_more_nodes_than_the_range_allows() -> None:
    decision = added(*(pod(name, cpu="2") for name in "abc"))
    assert decision.nodes == SPARE
    assert refusals(decision) == {"c": FULL}


def test_a_pod_that_is_too_large_for_any_node_adds_none() -> None:
    decision = added(pod("large", cpu="3"), pod("a"))
    assert decision.nodes == ("node-2",)
    assert refusals(decision) == {"large": "1 Insufficient cpu"}


def test_a_node_selector_that_no_new_node_has_adds_none() -> None:
    decision = added(pod("a", nodeSelector={"disk": "fast"}))
    assert decision.nodes == ()
    reason = "1 node(s) didn't match Pod's node affinity/selector"
    assert refusals(decision) == {"a": reason}


def test_a_selector_for_an_existing_host_adds_none() -> None:
    selector = {"kubernetes.io/hostname": "node-1"}
    assert added(pod("a", nodeSelector=selector)).nodes == ()


def test_a_node_that_is_starting_is_counted() -> None:
    assert added(pod("a"), starting=("node-2",), spare=("node-3",)).nodes == ()
    assert added(pod("a"), pod("b", cpu="2"), starting=("node-2",), spare=("node-3",)).nodes == (
        "node-3",
    )


def test_pods_of_daemon_sets_take_room_on_a_new_node() -> None:
    daemon = pod("agent", "node-1", cpu="500m", owner="DaemonSet")
    state = ClusterState({"node-1": node("node-1")}, [daemon, pod("b", "node-1"), pod("a")])
    assert scale_up(state, (), SPARE).nodes == ("node-2",)
    large = ClusterState({"node-1": node("node-1")}, [daemon, pod("a", cpu="1600m")])
    assert refusals(scale_up(large, (), SPARE)) == {"a": "1 Insufficient cpu"}


def test_anti_affinity_puts_each_pod_on_a_node_of_its_own() -> None:
    term = {
        "labelSelector": {"matchLabels": {"app": "web"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    pods = [pod(name, cpu="100m", affinity=apart, meta={"labels": {"app": "web"}}) for name in "ab"]
    assert added(*pods).nodes == SPARE


def test_a_draining_node_takes_no_pods() -> None:
    nodes = {"node-1": node("node-1"), "node-2": node("node-2", draining=True)}
    state = ClusterState(nodes, [pod("busy", "node-1", cpu="2"), pod("a")])
    assert scale_up(state, (), ("node-3",)).nodes == ("node-3",)


def test_without_a_ready_node_there_is_no_model() -> None:
    state = ClusterState({"node-1": node("node-1", ready=False)}, [pod("a")])
    assert scale_up(state, (), SPARE) == ScaleUp()


@pytest.mark.parametrize(
    "other",
    [
        pod("a", "node-1"),
        pod("a", meta={"deletionTimestamp": "2030-01-01T00:00:00Z"}),
        pod("a", status={"nominatedNodeName": "node-1"}),
        pod("a", status={"conditions": []}),
        pod("a", schedulerName="other"),
    ],
    ids=["placed", "deleted", "nominated", "not tried yet", "of another scheduler"],
)
def test_other_pods_do_not_wait_for_a_node(other: Any) -> None:
    assert pending([other]) == []


def test_important_pods_come_first() -> None:
    found = pending([pod("a"), pod("b", priority=10)])
    assert [each.metadata.name for each in found] == ["b", "a"]
