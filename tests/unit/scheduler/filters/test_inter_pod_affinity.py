from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.scheduler.demand import AffinityTerm, PodDemand
from kedge.scheduler.filters import inter_pod_affinity
from kedge.scheduler.snapshot import Snapshot
from kedge.testing.scheduling import cluster, demand, new_node

ALONE = "node(s) didn't match pod affinity rules"
CROWDED = "node(s) didn't match pod anti-affinity rules"
UNWANTED = "node(s) didn't satisfy existing pods anti-affinity rules"


def term(app: str, topology: str = "zone", **more: Any) -> dict[str, Any]:
    selector = {"matchLabels": {"app": app}}
    return {"topologyKey": topology, "labelSelector": selector} | more


def affinity(near: list[dict[str, Any]], far: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "affinity": {
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": near},
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": far},
        }
    }


def near(*terms: dict[str, Any]) -> dict[str, Any]:
    return affinity([*terms], [])


def far(*terms: dict[str, Any]) -> dict[str, Any]:
    return affinity([], [*terms])


def zones(**namespaces: dict[str, str]) -> Snapshot:
    """Two nodes in zone one, one in zone two, one in none."""
    return cluster(
        new_node("a", labels={"zone": "one"}),
        new_node("b", labels={"zone": "one"}),
        new_node("c", labels={"zone": "two"}),
        new_node("d"),
        namespaces=namespaces,
    )


def refusals(pod: PodDemand, snapshot: Snapshot) -> dict[str, str]:
    check = inter_pod_affinity.prepare(pod, snapshot)
    if check is None:
        return {}
    assert callable(check)
    found = {name: check(node) for name, node in snapshot.nodes.items()}
    return {name: each.reasons[0] for name, each in found.items() if each is not None}


def test_near_means_the_same_area_as_a_pod_that_is_meant() -> None:
    snapshot = zones()
    snapshot.place(demand("db", labels={"app": "db"}), "a")
    assert refusals(demand(**near(term("db"))), snapshot) == {"c": ALONE, "d": ALONE}


def test_all_terms_must_mean_the_same_pod() -> None:
    snapshot = zones()
    snapshot.place(demand("x", labels={"app": "x"}), "a")
    snapshot.place(demand("y", labels={"app": "y"}), "a")
    assert set(refusals(demand(**near(term("x"), term("y"))), snapshot)) == set("abcd")


def test_the_first_of_several_that_want_to_be_together_may_choose() -> None:
    pod = demand(labels={"app": "ring"}, **near(term("ring")))
    assert refusals(pod, zones()) == {"d": ALONE}
    assert set(refusals(demand(labels={"app": "x"}, **near(term("ring"))), zones())) == set("abcd")


def test_far_keeps_away_from_the_whole_area() -> None:
    snapshot = zones()
    snapshot.place(demand("x", labels={"app": "x"}), "a")
    assert refusals(demand(**far(term("x"))), snapshot) == {"a": CROWDED, "b": CROWDED}


def test_a_pod_that_wants_to_be_far_from_others_keeps_them_away_too() -> None:
    snapshot = zones()
    snapshot.place(demand("shy", **far(term("loud"))), "a")
    assert refusals(demand(labels={"app": "loud"}), snapshot) == {"a": UNWANTED, "b": UNWANTED}
    assert refusals(demand(labels={"app": "quiet"}), snapshot) == {}


@pytest.mark.parametrize(
    ("more", "meant"),
    [
        ({}, False),
        ({"namespaces": ["other"]}, True),
        ({"namespaceSelector": {}}, True),
        ({"namespaceSelector": {"matchLabels": {"team": "x"}}}, True),
        ({"namespaceSelector": {"matchLabels": {"team": "y"}}}, False),
    ],
)
def test_pods_of_other_namespaces_are_meant_only_if_the_term_says_so(
    more: dict[str, Any], meant: bool
) -> None:
    snapshot = zones(default={}, other={"team": "x"})
    snapshot.place(demand("x", namespace="other", labels={"app": "x"}), "a")
    assert bool(refusals(demand(**far(term("x", **more))), snapshot)) is meant
    # The same the other way round: who is placed looks at the namespace of who comes.
    snapshot = zones(default={}, other={"team": "x"})
    snapshot.place(demand("shy", **far(term("x", **more))), "a")
    comer = demand("x", namespace="other", labels={"app": "x"})
    assert bool(refusals(comer, snapshot)) is meant


def test_labels_of_its_own_narrow_what_a_pod_means() -> None:
    snapshot = zones()
    snapshot.place(demand("old", labels={"app": "x", "version": "1"}), "a")
    same = far(term("x", matchLabelKeys=["version"]))
    assert refusals(demand(labels={"app": "x", "version": "2"}, **same), snapshot) == {}
    assert refusals(demand(labels={"app": "x", "version": "1"}, **same), snapshot) != {}
    others = far(term("x", mismatchLabelKeys=["version"]))
    assert refusals(demand(labels={"app": "x", "version": "2"}, **others), snapshot) != {}
    assert refusals(demand(labels={"app": "x", "version": "1"}, **others), snapshot) == {}


_APPS = st.sampled_from(["x", "y"])
_TERMS = st.lists(
    st.builds(term, _APPS, st.sampled_from(["zone", "kubernetes.io/hostname"])), max_size=2
)
_PODS = st.tuples(_APPS, _TERMS, _TERMS)


@given(st.lists(st.tuples(_PODS, st.sampled_from("abcd")), max_size=6), _PODS)
def test_it_agrees_with_looking_at_every_pair_of_pods(
    placed: list[tuple[tuple[str, Any, Any], str]], comer: tuple[str, Any, Any]
) -> None:
    snapshot = zones()
    for number, ((app, nearby, away), node) in enumerate(placed):
        snapshot.place(demand(f"p{number}", labels={"app": app}, **affinity(nearby, away)), node)
    app, nearby, away = comer
    pod = demand(labels={"app": app}, **affinity(nearby, away))
    expected = {name for name in "abcd" if _must_not(pod, name, snapshot)}
    assert set(refusals(pod, snapshot)) == expected


def _must_not(pod: PodDemand, node: str, snapshot: Snapshot) -> bool:
    def together(one: str, other: str, topology: str) -> bool:
        here = snapshot.nodes[one].labels.get(topology)
        return here is not None and here == snapshot.nodes[other].labels.get(topology)

    def means(each: AffinityTerm, other: PodDemand) -> bool:
        return each.matches(other.namespace, other.labels, {})

    pods = [(other, name) for name, n in snapshot.nodes.items() for other in n.pods.values()]
    for other, home in pods:
        if any(means(t, other) and together(node, home, t.topology) for t in pod.anti_affinity):
            return True
        if any(means(t, pod) and together(node, home, t.topology) for t in other.anti_affinity):
            return True
    if not pod.affinity:
        return False
    if any(each.topology not in snapshot.nodes[node].labels for each in pod.affinity):
        return True
    company = [(o, home) for o, home in pods if all(means(each, o) for each in pod.affinity)]
    areas = {
        (each.topology, snapshot.nodes[home].labels[each.topology])
        for _, home in company
        for each in pod.affinity
        if each.topology in snapshot.nodes[home].labels
    }
    if not areas and all(means(each, pod) for each in pod.affinity):
        return False
    own = snapshot.nodes[node].labels
    return any((each.topology, own[each.topology]) not in areas for each in pod.affinity)
