from typing import Any

import pytest

from kedge.scheduler.cycle import rank
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.scores.scores import SCORES
from kedge.scheduler.snapshot import Snapshot
from kedge.testing.scheduling import cluster, demand, new_node

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def scores(pod: PodDemand, snapshot: Snapshot, name: str) -> list[int] | None:
    """What one of the scores gave each node, in their order; None if it made no difference."""
    ranking = rank(pod, snapshot, [*snapshot.nodes.values()])
    return next((list(found) for each, found in ranking.parts if each.name == name), None)


def test_they_count_as_much_as_in_kubernetes() -> None:
    assert {each.name: each.weight for each in SCORES if each.name != "NodeUsage"} == {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "DynamicResources": 2,
        "NodeResourcesBalancedAllocation": 1,
    }


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        # 3 of 4 cpus and 6 of 8 gigabytes would be left, or 7 of 8 and 6 of 8.
        ({"cpu": "1", "memory": "2Gi"}, [75, 81]),
        # A pod that asks for nothing is taken for 100m and 200Mi.
        ({}, [97, 97]),
        ({"cpu": "9", "memory": "9Gi"}, [0, 0]),
    ],
)
def test_the_more_is_left_the_better(requests: dict[str, str], expected: list[int]) -> None:
    snapshot = cluster(new_node("a"), new_node("b", cpu="8"))
    assert scores(demand(requests=requests), snapshot, "NodeResourcesFit") == expected


def test_what_is_left_is_counted_anew_when_pods_come_and_go() -> None:
    snapshot = cluster(new_node("a"))
    pod, other = demand(requests={"cpu": "1", "memory": "1Gi"}), demand(requests={"cpu": "2"})
    before = scores(pod, snapshot, "NodeResourcesFit")
    snapshot.place(other, "a")
    assert scores(pod, snapshot, "NodeResourcesFit") != before
    snapshot.remove(other.uid)
    assert scores(pod, snapshot, "NodeResourcesFit") == before


def test_a_pod_that_evens_out_a_node_is_welcome_there() -> None:
    snapshot = cluster(new_node("even"), new_node("cpu-heavy"))
    snapshot.place(demand("other", requests={"cpu": "2"}), "cpu-heavy")
    asked = demand(requests={"memory": "4Gi"})
    assert scores(asked, snapshot, "NodeResourcesBalancedAllocation") == [62, 87]
    assert scores(demand(), snapshot, "NodeResourcesBalancedAllocation") is None


def test_taints_that_only_ask() -> None:
    def taint(key: str) -> dict[str, str]:
        return {"key": key, "effect": "PreferNoSchedule"}

    snapshot = cluster(
        new_node("a"),
        new_node("b", taints=[taint("x")]),
        new_node("c", taints=[taint("x"), taint("y")]),
    )
    assert scores(demand(), snapshot, "TaintToleration") == [100, 50, 0]
    tolerant = demand(tolerations=[{"key": "x", "operator": "Exists"}])
    assert scores(tolerant, snapshot, "TaintToleration") == [100, 100, 0]
    assert scores(demand(tolerations=[{"operator": "Exists"}]), snapshot, "TaintToleration") is None


def test_wishes_about_nodes() -> None:
    def wish(weight: int, value: str) -> dict[str, Any]:
        expression = {"key": "disk", "operator": "In", "values": [value]}
        return {"weight": weight, "preference": {"matchExpressions": [expression]}}

    snapshot = cluster(
        new_node("a", labels={"disk": "ssd"}), new_node("b", labels={"disk": "hdd"}), new_node("c")
    )
    wishes = {PREFERRED: [wish(80, "ssd"), wish(20, "hdd")]}
    pod = demand(affinity={"nodeAffinity": wishes})
    assert scores(pod, snapshot, "NodeAffinity") == [100, 25, 0]
    assert scores(demand(), snapshot, "NodeAffinity") is None


def wish(weight: int, app: str) -> dict[str, Any]:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": app}}}
    return {PREFERRED: [{"weight": weight, "podAffinityTerm": term}]}


def zones() -> Snapshot:
    return cluster(
        new_node("a", labels={"zone": "one"}),
        new_node("b", labels={"zone": "two"}),
        new_node("c", labels={"zone": "three"}),
    )


def test_wishes_about_neighbours_count_for_each_of_them() -> None:
    snapshot = zones()
    for name, node in (("p1", "a"), ("p2", "a"), ("p3", "b")):
        snapshot.place(demand(name, labels={"app": "x"}), node)
    fond = demand(affinity={"podAffinity": wish(10, "x")})
    assert scores(fond, snapshot, "InterPodAffinity") == [100, 50, 0]
    averse = demand(affinity={"podAntiAffinity": wish(10, "x")})
    assert scores(averse, snapshot, "InterPodAffinity") == [0, 50, 100]


def test_neighbours_have_wishes_too() -> None:
    snapshot = zones()
    snapshot.place(demand("fond", affinity={"podAffinity": wish(10, "x")}), "a")
    snapshot.place(demand("averse", affinity={"podAntiAffinity": wish(10, "x")}), "b")
    comer = demand(labels={"app": "x"})
    assert scores(comer, snapshot, "InterPodAffinity") == [100, 0, 50]
    assert scores(demand(), snapshot, "InterPodAffinity") is None


def test_where_fewer_of_the_same_pods_are() -> None:
    snapshot = zones()
    snapshot.put_node(new_node("d"))
    for name, node in (("p1", "a"), ("p2", "a"), ("p3", "b")):
        snapshot.place(demand(name, labels={"app": "x"}), node)
    rule = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "x"}},
    }
    pod = demand(labels={"app": "x"}, topologySpreadConstraints=[rule])
    # Two pods weigh 2 * ln 5, rounded 3; one weighs 2. A node in no zone is worth nothing.
    assert scores(pod, snapshot, "PodTopologySpread") == [0, 33, 100, 0]


def test_spread_over_nodes_counts_each_node_by_itself() -> None:
    snapshot = cluster(new_node("a"), new_node("b"))
    snapshot.place(demand("p", labels={"app": "x"}), "a")
    rule = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "x"}},
    }
    pod = demand(labels={"app": "x"}, topologySpreadConstraints=[rule])
    assert scores(pod, snapshot, "PodTopologySpread") == [0, 100]
