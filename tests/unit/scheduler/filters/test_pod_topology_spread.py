from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kedge.scheduler.demand import PodDemand
from kedge.scheduler.filters import pod_topology_spread
from kedge.scheduler.snapshot import Snapshot
from kedge.testing.scheduling import cluster, demand, new_node

UNEVEN = "node(s) didn't match pod topology spread constraints"
NO_AREA = f"{UNEVEN} (missing required label)"


def rule(topology: str = "zone", **more: Any) -> dict[str, Any]:
    plain = {
        "maxSkew": 1,
        "topologyKey": topology,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}},
    }
    return plain | more


def zones(*counts: int, **more: Any) -> Snapshot:
    """One node for each zone, with as many pods."""
    snapshot = cluster(
        *(new_node(f"n{i}", labels={"zone": f"z{i}"}, **more) for i in range(len(counts)))
    )
    for i, count in enumerate(counts):
        for j in range(count):
            snapshot.place(demand(f"p{i}-{j}", labels={"app": "x"}), f"n{i}")
    return snapshot


def refusals(pod: PodDemand, snapshot: Snapshot) -> dict[str, str]:
    check = pod_topology_spread.prepare(pod, snapshot)
    if check is None:
        return {}
    assert callable(check)
    found = {name: check(node) for name, node in snapshot.nodes.items()}
    return {name: each.reasons[0] for name, each in found.items() if each is not None}


def spread(*rules: dict[str, Any], **more: Any) -> PodDemand:
    labels = more.pop("labels", {"app": "x"})
    return demand(labels=labels, topologySpreadConstraints=[*rules], **more)


def test_the_fullest_area_waits_for_the_others() -> None:
    assert refusals(spread(rule()), zones(1, 0)) == {"n0": UNEVEN}
    assert refusals(spread(rule(maxSkew=2)), zones(1, 0)) == {}


def test_a_pod_that_does_not_count_itself_may_join_a_full_area() -> None:
    assert refusals(spread(rule(), labels={"app": "y"}), zones(1, 0)) == {}


def test_nodes_outside_of_every_area_are_no_choice() -> None:
    snapshot = zones(0, 0)
    snapshot.put_node(new_node("nowhere"))
    assert refusals(spread(rule()), snapshot) == {"nowhere": NO_AREA}


def test_too_few_areas_count_as_if_an_empty_one_existed() -> None:
    assert refusals(spread(rule(minDomains=3)), zones(1, 1)) == {"n0": UNEVEN, "n1": UNEVEN}
    assert refusals(spread(rule(minDomains=2)), zones(1, 1)) == {}


def test_nodes_that_a_pod_cannot_go_to_are_left_out_unless_told_otherwise() -> None:
    selected = {"nodeSelector": {"zone": "z0"}}
    assert refusals(spread(rule(), **selected), zones(1, 0)) == {}
    ignoring = rule(nodeAffinityPolicy="Ignore")
    assert refusals(spread(ignoring, **selected), zones(1, 0)) == {"n0": UNEVEN}


def test_tainted_nodes_count_unless_told_otherwise() -> None:
    snapshot = zones(1, 0)
    taint = {"key": "x", "effect": "NoSchedule"}
    snapshot.put_node(new_node("n1", labels={"zone": "z1"}, taints=[taint]))
    assert refusals(spread(rule()), snapshot) == {"n0": UNEVEN}
    assert refusals(spread(rule(nodeTaintsPolicy="Honor")), snapshot) == {}


def test_labels_of_its_own_tell_one_rollout_from_the_next() -> None:
    snapshot = zones(0, 0)
    snapshot.place(demand("old", labels={"app": "x", "hash": "1"}), "n0")
    by_hash = rule(matchLabelKeys=["hash"])
    assert refusals(spread(by_hash, labels={"app": "x", "hash": "2"}), snapshot) == {}
    assert refusals(spread(by_hash, labels={"app": "x", "hash": "1"}), snapshot) == {"n0": UNEVEN}


def test_pods_of_other_namespaces_do_not_count() -> None:
    snapshot = zones(0, 0)
    snapshot.place(demand("p", namespace="other", labels={"app": "x"}), "n0")
    assert refusals(spread(rule()), snapshot) == {}


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(1, 3), st.integers(1, 5))
def test_it_agrees_with_the_definition_of_skew(counts: list[int], skew: int, domains: int) -> None:
    pod = spread(rule(maxSkew=skew, minDomains=domains))
    least = 0 if len(counts) < domains else min(counts)
    expected = {f"n{i}" for i, count in enumerate(counts) if count + 1 - least > skew}
    assert set(refusals(pod, zones(*counts))) == expected
