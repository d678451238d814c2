from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kedge.api.core_v1.pod.status import PodCondition
from kedge.api.model import LabelSelector, ObjectMeta
from kedge.api.policy_v1.pod_disruption_budget import (
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
)
from kedge.scheduler import preemption
from kedge.scheduler.cycle import CycleState, FitError, Placement, decide
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.preemption import (
    NO_VICTIMS,
    PreemptionCandidate,
    PreemptionImpossible,
    Search,
    clear,
    is_preempted,
    preempt,
    search_victims,
)
from kedge.scheduler.snapshot import Snapshot
from kedge.testing.scheduling import cluster, demand, new_node


def pod(name: str, cpu: int, priority: int = 0, **more: Any) -> PodDemand:
    return demand(name, requests={"cpu": str(cpu)}, priority=priority, **more)


def filled(**nodes: list[PodDemand]) -> Snapshot:
    """Nodes of four cpus with these pods."""
    snapshot = cluster(*map(new_node, nodes))
    for name, pods in nodes.items():
        for each in pods:
            snapshot.place(each, name)
    return snapshot


def tried(
    asked: PodDemand, snapshot: Snapshot, budgets: list[PodDisruptionBudget] | None = None
) -> PreemptionCandidate | PreemptionImpossible:
    unfit = decide(asked, snapshot, CycleState())
    assert isinstance(unfit, FitError)
    return preempt(asked, snapshot, unfit, budgets or [], CycleState())


def victims(found: PreemptionCandidate | PreemptionImpossible) -> list[str]:
    assert isinstance(found, PreemptionCandidate), found.message
    return [each.key.name for each in found.victims]


def why_not(found: PreemptionCandidate | PreemptionImpossible) -> str:
    assert isinstance(found, PreemptionImpossible)
    return found.message


def budget(allowed: int, app: str, **status: Any) -> PodDisruptionBudget:
    return PodDisruptionBudget(
        metadata=ObjectMeta(name="b", namespace="default"),
        spec=PodDisruptionBudgetSpec(selector=LabelSelector(matchLabels={"app": app})),
        status=PodDisruptionBudgetStatus(disruptionsAllowed=allowed, **status),
    )


def test_only_as_many_go_as_must_the_least_important_first() -> None:
    snapshot = filled(n=[pod("a", 1, 1), pod("b", 1, 2), pod("c", 1, 3), pod("d", 1, 9)])
    found = tried(pod("new", 2, 5), snapshot)
    assert victims(found) == ["b", "a"]
    assert len(snapshot.nodes["n"].pods) == 4


def test_of_equals_the_one_that_started_later_goes() -> None:
    old = pod("old", 2, status={"startTime": "2030-01-01T00:00:00Z"})
    young = pod("young", 2, status={"startTime": "2030-01-02T00:00:00Z"})
    assert victims(tried(pod("new", 2, 1), filled(n=[young, old]))) == ["young"]


def test_nobody_goes_for_a_pod_of_the_same_priority() -> None:
    found = tried(pod("new", 1, 5), filled(a=[pod("p", 4, 5)], b=[pod("q", 4, 6)]))
    assert why_not(found) == (
        "preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."
    )


def test_nodes_that_are_too_small_are_not_cleared() -> None:
    found = tried(pod("new", 5, 5), filled(a=[pod("p", 4)]))
    assert why_not(found) == (
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )


def test_what_still_keeps_the_pod_away_is_told() -> None:
    found = tried(pod("new", 3, 5), filled(a=[pod("p", 2), pod("q", 2, 9)], b=[pod("r", 4, 9)]))
    assert why_not(found) == (
        "preemption: 0/2 nodes are available: 1 Insufficient cpu, "
        "1 No preemption victims found for incoming pod."
    )


def test_a_pod_may_renounce_preemption() -> None:
    found = tried(pod("new", 1, 5, preemptionPolicy="Never"), filled(a=[pod("p", 4)]))
    assert why_not(found) == "preemption: not eligible due to preemptionPolicy=Never."


def test_the_node_is_chosen_where_least_is_lost() -> None:
    def chosen(**nodes: list[PodDemand]) -> str:
        found = tried(pod("new", 4, 50), filled(**nodes))
        assert isinstance(found, PreemptionCandidate)
        return found.node

    assert chosen(a=[pod("p", 4, 9)], b=[pod("q", 4, 1)]) == "b"
    assert chosen(a=[pod("p", 2, 9), pod("p2", 2, 1)], b=[pod("q", 2, 9), pod("q2", 2)]) == "b"
    assert chosen(a=[pod("p", 2), pod("p2", 2)], b=[pod("q", 4)]) == "b"
    # The lowest priority adds nothing to the sum, so that the number of victims decides.
    assert chosen(a=[pod("p", 2), pod("p2", 2, -(2**31))], b=[pod("q", 4)]) == "b"
    old = {"startTime": "2030-01-01T00:00:00Z"}
    young = {"startTime": "2030-01-02T00:00:00Z"}
    assert chosen(a=[pod("p", 4, status=old)], b=[pod("q", 4, status=young)]) == "b"


def test_budgets_decide_who_goes_as_long_as_somebody_else_can() -> None:
    kept = pod("kept", 2, 1, labels={"app": "x"})
    other = pod("other", 2, 2)
    assert victims(tried(pod("new", 2, 5), filled(n=[kept, other]))) == ["kept"]
    snapshot = filled(n=[kept, other])
    assert victims(tried(pod("new", 2, 5), snapshot, [budget(0, "x")])) == ["other"]
    assert victims(tried(pod("new", 2, 5), snapshot, [budget(1, "x")])) == ["kept"]
    disrupted = budget(0, "x", disruptedPods={"kept": "2030-01-01T00:00:00Z"})
    assert victims(tried(pod("new", 2, 5), snapshot, [disrupted])) == ["kept"]


def test_a_budget_is_overrun_if_there_is_no_other_way_but_nowhere_else() -> None:
    kept = pod("kept", 4, labels={"app": "x"})
    found = tried(pod("new", 4, 50), filled(a=[kept], b=[pod("dear", 4, 40)]), [budget(0, "x")])
    assert victims(found) == ["dear"]
    found = tried(pod("new", 4, 50), filled(a=[kept]), [budget(0, "x")])
    assert victims(found) == ["kept"]
    assert isinstance(found, PreemptionCandidate)
    assert found.violations == 1


def test_pods_that_must_not_be_near_can_be_sent_away() -> None:
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "loud"}},
    }
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    asked = demand("new", priority=5, affinity={"podAntiAffinity": required})
    snapshot = filled(n=[pod("calm", 1), pod("loud", 1, labels={"app": "loud"})])
    assert victims(tried(asked, snapshot)) == ["loud"]


def test_while_victims_leave_nobody_else_is_sent_away() -> None:
    asked, leaving = pod("new", 4, 5), pod("p", 4)
    snapshot = filled(a=[leaving], b=[pod("q", 4, 1)])
    snapshot.nominate(asked, "a")
    snapshot.condemned.add(leaving.uid)
    found = tried(asked, snapshot)
    assert why_not(found) == (
        "preemption: not eligible due to a terminating pod on the nominated node."
    )
    assert isinstance(found, PreemptionImpossible)
    assert found.keeps_nomination


def test_a_nominated_node_that_refuses_for_good_is_not_waited_for() -> None:
    asked, leaving = pod("new", 4, 5), pod("p", 4)
    snapshot = filled(a=[leaving], b=[pod("q", 4, 1)])
    snapshot.nominate(asked, "a")
    snapshot.condemned.add(leaving.uid)
    snapshot.put_node(new_node("a", unschedulable=True))
    found = tried(asked, snapshot)
    assert isinstance(found, PreemptionCandidate)
    assert (found.node, victims(found)) == ("b", ["q"])


def test_only_lesser_pods_that_leave_are_waited_for() -> None:
    asked, equal = pod("new", 2, 5), pod("p", 2, 5)
    snapshot = filled(a=[equal, pod("q", 2, 1)])
    snapshot.nominate(asked, "a")
    assert victims(tried(asked, snapshot)) == ["q"]
    snapshot.condemned.add(equal.uid)
    assert victims(tried(asked, snapshot)) == ["q"]


def test_victims_are_known_by_their_condition_after_a_restart() -> None:
    told = PodCondition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
    meta = {"deletionTimestamp": "2030-01-01T00:00:00Z"}
    plain = pod("p", 4, metadata=meta).pod
    leaving = PodDemand(replace(plain, status=replace(plain.status, conditions=[told])))
    asked = pod("new", 4, 5)
    snapshot = filled(a=[leaving])
    snapshot.nominate(asked, "a")
    assert "terminating pod" in why_not(tried(asked, snapshot))


def test_one_victim_that_leaves_is_enough_to_wait() -> None:
    asked, leaving = pod("new", 4, 5), pod("p", 2)
    snapshot = filled(a=[leaving, pod("q", 2)])
    snapshot.nominate(asked, "a")
    assert isinstance(tried(asked, snapshot), PreemptionCandidate)
    snapshot.condemned.add(leaving.uid)
    assert "terminating pod" in why_not(tried(asked, snapshot))


@pytest.mark.parametrize(
    ("conditions", "preempted"),
    [
        (["DisruptionTarget True PreemptionByScheduler"], True),
        (["Ready True ", "DisruptionTarget True PreemptionByScheduler"], True),
        (["DisruptionTarget False PreemptionByScheduler"], False),
        (["DisruptionTarget True EvictionByEvictionAPI"], False),
        (["Ready True PreemptionByScheduler"], False),
        ([], False),
    ],
)
def test_a_pod_that_leaves_was_preempted_if_a_condition_says_so(
    conditions: list[str], preempted: bool
) -> None:
    fields = ("type", "status", "reason")
    told = [dict(zip(fields, each.split(" "), strict=True)) for each in conditions]
    meta = {"deletionTimestamp": "2030-01-01T00:00:00Z"}
    assert is_preempted(pod("p", 1, metadata=meta, status={"conditions": told}).pod) is preempted
    assert not is_preempted(pod("p", 1, status={"conditions": told}).pod)


def test_a_victim_that_is_spared_takes_the_place_of_none_that_goes() -> None:
    found = tried(pod("new", 3, 5), filled(n=[pod("large", 2, 2), pod("small", 1, 1)]))
    assert victims(found) == ["large"]


def test_victims_are_listed_by_importance_whether_a_budget_protects_them_or_not() -> None:
    kept, other = pod("kept", 2, 1, labels={"app": "x"}), pod("other", 2, 2)
    found = tried(pod("new", 4, 5), filled(n=[kept, other]), [budget(0, "x")])
    assert victims(found) == ["other", "kept"]


@pytest.mark.parametrize("selector", [None, LabelSelector()])
def test_a_budget_that_selects_nothing_does_not_hide_the_next(
    selector: LabelSelector | None,
) -> None:
    nothing = replace(budget(0, "x"), spec=PodDisruptionBudgetSpec(selector=selector))
    kept, other = pod("kept", 2, 1, labels={"app": "x"}), pod("other", 2, 2)
    found = tried(pod("new", 2, 5), filled(n=[kept, other]), [nothing, budget(0, "x")])
    assert victims(found) == ["other"]


def test_of_equal_nodes_the_one_whose_oldest_important_victim_is_youngest_is_cleared() -> None:
    def started(name: str, day: int, priority: int = 1) -> PodDemand:
        return pod(name, 1, priority, status={"startTime": f"2030-01-0{day}T00:00:00Z"})

    a = [started("a1", 1), started("a2", 4), started("a3", 9, 0), pod("a4", 1, 99)]
    b = [started("b1", 2), started("b2", 3), started("b3", 1, 0), pod("b4", 1, 99)]
    found = tried(pod("new", 3, 50), filled(a=a, b=b))
    assert isinstance(found, PreemptionCandidate)
    assert found.node == "b"


def test_a_node_on_which_nobody_must_go_has_no_victims() -> None:
    snapshot = filled(n=[pod("p", 1)])
    assert clear(pod("new", 1, 5), snapshot.nodes["n"], snapshot, []) is NO_VICTIMS


@pytest.mark.parametrize(("most", "cleared"), [(9, True), (8, False)])
def test_a_node_is_not_cleared_if_that_takes_too_many_comparisons(
    monkeypatch: pytest.MonkeyPatch, most: int, cleared: bool
) -> None:
    monkeypatch.setattr(preemption, "MOST_COMPARISONS", most)
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "loud"}}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    asked = pod("new", 4, 5, affinity={"podAntiAffinity": required})
    snapshot = filled(n=[pod(f"p{i}", 1, labels={"app": str(i)}) for i in range(3)])
    found = clear(asked, snapshot.nodes["n"], snapshot, [])
    assert isinstance(found, PreemptionCandidate) is cleared


def begun(snapshot: Snapshot, budgets: list[PodDisruptionBudget]) -> Search:
    """The search for the victims of a pod that takes a whole node."""
    asked = pod("new", 4, 5)
    unfit = decide(asked, snapshot, CycleState())
    assert isinstance(unfit, FitError)
    return search_victims(asked, snapshot, unfit, budgets, CycleState())


def looked_at(search: Search) -> tuple[int, PreemptionCandidate]:
    """The number of nodes that the rest of a search looks at, and the one that is chosen."""
    found: list[PreemptionCandidate | PreemptionImpossible] = []

    def to_the_end() -> Iterator[None]:
        found.append((yield from search))

    count = sum(1 for _ in to_the_end())
    assert isinstance(found[0], PreemptionCandidate)
    return count, found[0]


def many(count: int, protected: Callable[[int], bool] = lambda _: False) -> Snapshot:
    """Nodes with one pod each, some of them in a disruption budget."""
    return filled(
        **{f"n{i}": [pod(f"p{i}", 4, labels={"app": f"x{protected(i)}"})] for i in range(count)}
    )


def test_not_all_nodes_of_a_large_cluster_are_compared() -> None:
    count, found = looked_at(begun(many(100), []))
    assert (count, found.node) == (100, "n0")
    assert looked_at(begun(many(150), []))[0] == 100
    half = many(150, lambda i: i % 2 == 0)
    assert looked_at(begun(half, [budget(0, "xTrue")]))[0] == 100


def test_one_node_in_ten_is_compared_if_that_is_more_than_a_hundred(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(preemption, "LEAST_CANDIDATES", 5)
    assert looked_at(begun(many(100), []))[0] == 10
    assert looked_at(begun(many(40), []))[0] == 5


def test_the_search_goes_on_until_a_node_needs_no_protected_pod() -> None:
    count, found = looked_at(begun(many(130, lambda i: i != 77), [budget(0, "xTrue")]))
    assert (found.node, found.violations) == ("n77", 0)
    assert count >= 100


def test_a_node_that_goes_during_the_search_is_passed_over() -> None:
    snapshot = filled(a=[pod("p", 4)], b=[pod("q", 4, 1)])
    search = begun(snapshot, [])
    next(search)
    snapshot.remove_node("a")
    assert victims(looked_at(search)[1]) == ["q"]


_PODS = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), max_size=5)


@given(st.lists(_PODS, min_size=1, max_size=3), st.integers(1, 4), st.integers(0, 4))
def test_after_preemption_the_pod_fits_and_no_victim_was_needless(
    nodes: list[list[tuple[int, int]]], cpu: int, priority: int
) -> None:
    snapshot = filled(
        **{
            f"n{i}": [pod(f"p{i}-{j}", *each) for j, each in enumerate(pods)]
            for i, pods in enumerate(nodes)
        }
    )
    asked = pod("new", cpu, priority)
    unfit = decide(asked, snapshot, CycleState())
    if isinstance(unfit, Placement):
        return
    found = preempt(asked, snapshot, unfit, [], CycleState())
    if isinstance(found, PreemptionImpossible):
        for node in snapshot.nodes.values():
            stay = sum(each.cpu for each in node.pods.values() if each.priority >= priority)
            assert stay + asked.cpu > 4000
        return
    node = snapshot.nodes[found.node]
    assert all(each.priority < priority for each in found.victims)
    freed = node.free_cpu + sum(each.cpu for each in found.victims)
    assert freed >= asked.cpu
    assert all(freed - each.cpu < asked.cpu for each in found.victims)
