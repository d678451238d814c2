"""Which node is removed."""

from typing import Any

import pytest

from kedge.node_autoscaler.cluster_state import ClusterState
from kedge.node_autoscaler.scale_down import (
    CalmPeriods,
    least_used,
    reason_to_keep,
    requested,
    unneeded,
)
from kedge.testing.node_autoscaler import budget, node, pod

IDLE = {"node-1": 0.1, "node-2": 0.1}


def state(*pods: Any, usage: dict[str, float] | None = None, **other: Any) -> ClusterState:
    nodes = {name: node(name) for name in ("node-1", "node-2")}
    return ClusterState(nodes, pods, usage=IDLE if usage is None else usage, **other)


def test_an_empty_node_is_not_needed() -> None:
    assert unneeded(state(), ["node-2"]) == {"node-2": 0.1}


def test_only_candidates_are_looked_at() -> None:
    assert unneeded(state(), []) == {}


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (state(usage={}), "its usage was not measured"),
        (state(usage={"node-2": 0.5}), "its pods use 50%"),
        (state(pod("a", "node-2")), "its pods request 50%"),
        (
            state(pod("a", "node-2", cpu="500m"), pod("b", "node-1", cpu="1600m")),
            "pod shop/a fits on no other node",
        ),
        (
            state(pod("a", "node-2", cpu="10m", owner="")),
            "pod shop/a: no controller would create it again",
        ),
        (
            state(
                pod("a", "node-2", cpu="10m", meta={"labels": {"app": "web"}}),
                budgets=[budget(0, app="web")],
            ),
            "pod shop/a: its PodDisruptionBudget allows no disruption",
        ),
    ],
    ids=["unmeasured", "used", "requested", "homeless", "bare", "protected"],
)
def test_a_node_is_kept(found: ClusterState, why: str) -> None:
    assert reason_to_keep(found, "node-2") == why


def test_pods_of_daemon_sets_go_with_their_node() -> None:
    daemon = pod("agent", "node-2", cpu="2", owner="DaemonSet")
    assert requested(state(daemon), "node-2") == 0
    assert reason_to_keep(state(daemon), "node-2") == ""


def test_pods_that_fit_elsewhere_do_not_keep_a_node() -> None:
    assert reason_to_keep(state(pod("a", "node-2", cpu="900m")), "node-2") == ""


def test_a_node_that_is_draining_or_not_ready_takes_no_pods() -> None:
    for other in (node("node-1", draining=True), node("node-1", ready=False)):
        found = state(pod("a", "node-2", cpu="100m"))
        found = found._replace(nodes={**found.nodes, "node-1": other})
        assert reason_to_keep(found, "node-2") == "pod shop/a fits on no other node"


def test_a_node_that_is_draining_is_no_candidate_any_more() -> None:
    found = state()._replace(nodes={"node-2": node("node-2", draining=True)})
    assert unneeded(found, ["node-2"]) == {}


def test_a_calm_period_begins_anew_when_a_node_is_needed() -> None:
    calm = CalmPeriods().observe(["a", "b"], 0.0).observe(["a"], 30.0).observe(["a", "b"], 60.0)
    assert calm.since == {"a": 0.0, "b": 60.0}
    assert calm.over(60.0, 60.0) == ["a"]
    assert calm.over(59.9, 60.0) == []


def test_the_least_used_node_goes_first() -> None:
    assert least_used(["a", "b", "c"], {"a": 0.3, "b": 0.1, "c": 0.2}) == "b"
    assert least_used(["a", "b"], {"a": 0.1, "b": 0.1}) == "b"
    assert least_used([], {}) == ""
