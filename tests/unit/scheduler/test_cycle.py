from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kedge.scheduler.cycle import (
    MOST_COMPARISONS,
    CycleState,
    FitError,
    Placement,
    PreparedFilters,
    Ranking,
    decide,
    pick,
    rank,
    unavailable,
    worth_comparing,
)
from kedge.scheduler.demand import MOST_RULES, PodDemand
from kedge.scheduler.filters.filter import Filter, NarrowedCheck, NodeRejection
from kedge.scheduler.scores.score import Score
from kedge.scheduler.snapshot import Snapshot
from kedge.testing.scheduling import cluster, demand, new_node

TAINT = {"key": "dedicated", "effect": "NoSchedule"}


def placed_on(pod: PodDemand, snapshot: Snapshot) -> str:
    decision = decide(pod, snapshot, CycleState())
    assert isinstance(decision, Placement), decision.message
    return decision.node


def why_not(pod: PodDemand, snapshot: Snapshot) -> str:
    decision = decide(pod, snapshot, CycleState())
    assert isinstance(decision, FitError)
    return decision.message


def test_every_reason_is_told_with_how_many_nodes_gave_it() -> None:
    snapshot = cluster(new_node("small"), *(new_node(f"t{i}", taints=[TAINT]) for i in range(2)))
    asked = demand(requests={"cpu": "9", "memory": "9Gi"})
    assert why_not(asked, snapshot) == (
        "0/3 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, "
        "2 node(s) had untolerated taint(s)."
    )


def test_without_nodes_that_is_the_reason() -> None:
    assert why_not(demand(), cluster()) == "no nodes available to schedule pods"


def test_a_reason_of_the_pods_own_is_told_once() -> None:
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    snapshot = cluster(new_node("a"), new_node("b"))
    assert why_not(demand(volumes=[claim]), snapshot) == (
        '0/2 nodes are available: persistentvolumeclaim "data" not found.'
    )


def named(*names: str) -> dict[str, Any]:
    """Affinity to the nodes of these names."""
    fields = [{"key": "metadata.name", "operator": "In", "values": [name]} for name in names]
    required = {"nodeSelectorTerms": [{"matchFields": [field]} for field in fields]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def test_nodes_that_a_pod_does_not_name_are_not_asked() -> None:
    affinity = named("b")
    snapshot = cluster(new_node("a"), new_node("b", cpu="1"), new_node("c"))
    assert placed_on(demand(affinity=affinity), snapshot) == "b"
    assert why_not(demand(affinity=affinity, requests={"cpu": "2"}), snapshot) == (
        "0/3 nodes are available: 1 Insufficient cpu, "
        "2 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    )


def test_nodes_that_were_all_named_and_asked_leave_no_others_to_tell_of() -> None:
    snapshot = cluster(new_node("a", cpu="1"), new_node("b", cpu="1"))
    assert why_not(demand(affinity=named("a", "b"), requests={"cpu": "2"}), snapshot) == (
        "0/2 nodes are available: 2 Insufficient cpu."
    )


def narrowing(name: str, *nodes: str) -> Filter:
    return Filter(name, lambda pod, snapshot: NarrowedCheck(frozenset(nodes), lambda node: None))


def test_only_nodes_that_every_narrowing_filter_names_are_asked() -> None:
    snapshot = cluster(*map(new_node, "abc"))
    filters = [narrowing("Zones", "a", "b"), narrowing("Disks", "b", "c")]
    found = decide(demand(), snapshot, CycleState(), filters=filters)
    assert isinstance(found, Placement)
    assert found.node == "b"
    filters = [narrowing("Zones", "a"), narrowing("Disks", "c")]
    refused = decide(demand(), snapshot, CycleState(), filters=filters)
    assert isinstance(refused, FitError)
    reason = "node(s) didn't satisfy plugin(s) [Disks Zones]"
    assert refused.rest == NodeRejection((reason,), final=True)
    assert refused.message == f"0/3 nodes are available: 3 {reason}."
    assert refused.blamed == {"Zones", "Disks"}


def test_a_filter_may_refuse_all_nodes_for_several_reasons() -> None:
    snapshot = cluster(new_node("a"))
    rejection = NodeRejection(("no claim", "no class"))
    filters = [Filter("Volumes", lambda pod, snapshot: rejection)]
    found = decide(demand(), snapshot, CycleState(), filters=filters)
    assert isinstance(found, FitError)
    assert found.message == "0/1 nodes are available: no claim, no class."
    prepared = PreparedFilters(demand(), snapshot, filters)
    assert prepared.refuses(snapshot.nodes["a"]) == ("Volumes", rejection)


def test_nodes_without_a_reason_are_counted_only() -> None:
    assert unavailable(2, {}, None) == "0/2 nodes are available:"


def test_the_node_that_was_cleared_for_a_pod_is_taken_first() -> None:
    snapshot = cluster(new_node("full", cpu="1"), new_node("empty", cpu="100"))
    pod = demand(requests={"cpu": "1"})
    snapshot.nominate(pod, "full")
    assert placed_on(pod, snapshot) == "full"


def test_what_is_kept_free_for_a_more_important_pod_is_not_given_away() -> None:
    snapshot = cluster(new_node("n", cpu="2"))
    snapshot.nominate(demand("important", requests={"cpu": "2"}, priority=10), "n")
    for priority in (0, 10):
        asked = demand(requests={"cpu": "1"}, priority=priority)
        assert "Insufficient cpu" in why_not(asked, snapshot)
    asked = demand(requests={"cpu": "3"}, priority=11)
    assert "Insufficient cpu" in why_not(asked, snapshot)
    assert placed_on(demand(requests={"cpu": "1"}, priority=11), snapshot) == "n"
    assert snapshot.nodes["n"].free_cpu == 2000


def test_ties_are_broken_by_the_seed_and_load_spreads() -> None:
    def chosen(seed: int) -> list[str]:
        snapshot, turn = cluster(*(new_node(f"n{i}") for i in range(4))), CycleState(seed)
        decisions = [decide(demand(f"p{i}"), snapshot, turn) for i in range(200)]
        return [each.node for each in decisions if isinstance(each, Placement)]

    assert chosen(1) == chosen(1)
    assert chosen(1) != chosen(2)
    assert min(Counter(chosen(1)).values()) > 25


def test_each_of_two_equal_nodes_is_chosen_at_times() -> None:
    snapshot = cluster(new_node("a"), new_node("b"))
    ranking = rank(demand(), snapshot, snapshot.order, [])
    assert {pick(ranking, CycleState(seed)).name for seed in range(20)} == {"a", "b"}


def test_a_score_that_is_added_counts_with_its_weight() -> None:
    snapshot = cluster(new_node("a"), new_node("b"))
    liked = Score("Usage", 5, lambda pod, whole, nodes: [int(n.name == "b") for n in nodes])
    ranking = rank(demand(), snapshot, snapshot.order, [liked])
    assert ranking.totals == [0, 5]
    assert pick(ranking, CycleState()).name == "b"


def test_a_ranking_tells_what_each_score_gave() -> None:
    snapshot = cluster(new_node("a"), new_node("b", cpu="8"))
    decision = decide(demand(requests={"cpu": "1"}), snapshot, CycleState())
    assert isinstance(decision, Placement)
    assert isinstance(decision.ranking, Ranking)
    parts = {score.name: values for score, values in decision.ranking.parts}
    assert parts["NodeResourcesFit"] == [86, 92]


def test_how_many_nodes_are_worth_comparing() -> None:
    assert [worth_comparing(n) for n in (1, 100, 500, 1000, 10_000)] == [100, 100, 230, 420, 500]


def test_in_a_large_cluster_each_node_has_its_turn() -> None:
    snapshot, turn = cluster(*(new_node(f"n{i}") for i in range(300))), CycleState()
    asked: set[str] = set()
    for i in range(3):
        decision = decide(demand(f"p{i}"), snapshot, turn)
        assert isinstance(decision, Placement)
        assert decision.ranking is not None
        assert len(decision.ranking.nodes) == worth_comparing(300)
        asked |= {node.name for node in decision.ranking.nodes}
    assert len(asked) == 300


def test_in_a_large_cluster_a_cycle_begins_where_the_last_one_ended() -> None:
    nodes = [new_node(f"n{i:03}", taints=[TAINT] if i < 50 else []) for i in range(300)]
    snapshot, turn = cluster(*nodes), CycleState()
    first = decide(demand("first"), snapshot, turn)
    assert isinstance(first, Placement)
    assert first.ranking is not None
    assert len(first.refusals) == 50
    assert first.ranking.nodes[0].name == "n050"
    second = decide(demand("second"), snapshot, turn)
    assert isinstance(second, Placement)
    assert second.ranking is not None
    assert second.ranking.nodes[0].name == f"n{50 + worth_comparing(300):03}"


_SIZES = st.integers(0, 5)


@given(
    st.lists(st.tuples(_SIZES, _SIZES, st.integers(0, 3)), min_size=1, max_size=4),
    st.lists(st.tuples(_SIZES, _SIZES, st.integers(0, 1)), max_size=12),
)
def test_nothing_is_ever_promised_twice(
    nodes: list[tuple[int, int, int]], pods: list[tuple[int, int, int]]
) -> None:
    """Against the plain rule: a node takes a pod if all of them together ask for no more."""
    snapshot = cluster(
        *(
            new_node(f"n{i}", cpu=str(cpu), memory=f"{memory}Gi", pods="5", gpu=str(gpu))
            for i, (cpu, memory, gpu) in enumerate(nodes)
        )
    )
    held = {f"n{i}": [0, 0, 0] for i in range(len(nodes))}
    for i, asked in enumerate(pods):
        pod = demand(f"p{i}", requests=_requests(*asked))
        fits = {
            name
            for name, sums in held.items()
            if len(snapshot.nodes[name].pods) < 5 and _within(sums, asked, nodes[int(name[1:])])
        }
        decision = decide(pod, snapshot, CycleState(i))
        if isinstance(decision, FitError):
            assert not fits
            continue
        assert decision.node in fits
        snapshot.place(pod, decision.node)
        held[decision.node] = [a + b for a, b in zip(held[decision.node], asked, strict=True)]


def _requests(cpu: int, memory: int, gpu: int) -> dict[str, str]:
    return {"cpu": str(cpu), "memory": f"{memory}Gi", "gpu": str(gpu)}


def _within(sums: list[int], asked: tuple[int, ...], offered: tuple[int, ...]) -> bool:
    rows: Any = zip(sums, asked, offered, strict=True)
    return all(not more or total + more <= most for total, more, most in rows)


def near(count: int) -> dict[str, Any]:
    """Affinity to pods of so many labels."""
    terms = [
        {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": f"a{i}"}}}
        for i in range(count)
    ]
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def test_a_pod_with_thousands_of_terms_is_compared_with_nothing() -> None:
    snapshot = cluster(new_node("a"), new_node("b"))
    asked = demand(affinity=near(MOST_RULES + 1))
    assert asked.anti_affinity == ()
    assert why_not(asked, snapshot) == (
        "0/2 nodes are available: the pod has 201 affinity terms and topology spread constraints, "
        "more than the 200 that are compared."
    )
    assert placed_on(demand(affinity=near(MOST_RULES)), snapshot) in ("a", "b")


def test_terms_times_labels_of_others_are_bounded() -> None:
    snapshot = cluster(new_node("a", pods="9999"))
    for i in range(MOST_COMPARISONS // MOST_RULES):
        snapshot.place(demand(labels={"i": str(i)}), "a")
    assert placed_on(demand(affinity=near(MOST_RULES)), snapshot) == "a"
    snapshot.place(demand(labels={"i": "last"}), "a")
    message = why_not(demand(affinity=near(MOST_RULES)), snapshot)
    assert "200 pod affinity terms take 100200 comparisons" in message
    assert placed_on(demand(affinity=near(MOST_RULES - 1)), snapshot) == "a"


def test_a_pod_that_requests_more_than_a_float_holds_keeps_no_other_from_being_placed() -> None:
    snapshot = cluster(new_node("a"), new_node("b"))
    snapshot.place(demand(requests={"cpu": "1e900", "memory": "1e900"}), "a")
    assert placed_on(demand(requests={"cpu": "1"}), snapshot) == "b"
    snapshot.place(demand(requests={"cpu": "1e900"}), "b")
    assert placed_on(demand(requests={"memory": "1Gi"}), snapshot) == "b"
