from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kedge.api.core_v1.node_types import Node
from kedge.machinery.selectors import parse_labels
from kedge.scheduler.demand import AffinityTerm, PodDemand
from kedge.scheduler.load import CpuAndMemory, Load
from kedge.scheduler.snapshot import Snapshot
from kedge.scheduler.usage import ExpectedUsage, PodUsage
from kedge.testing.scheduling import cluster, demand, new_node

OWNED = {
    "ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
    ]
}


def affinity_term(**fields: Any) -> AffinityTerm:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "z", **fields}]}
    (term,) = demand(affinity={"podAffinity": required}).affinity
    return term


def constant_usage(amount: int) -> PodUsage:
    used = CpuAndMemory(amount, amount)
    return PodUsage(used, used, minute=True, hour=True)


def near(topology: str, app: str) -> dict[str, Any]:
    term = {"topologyKey": topology, "labelSelector": {"matchLabels": {"app": app}}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"affinity": {"podAntiAffinity": required, "podAffinity": required}}


def test_pods_come_and_go_and_leave_nothing_behind() -> None:
    snapshot = cluster(new_node("n"))
    ports = [{"containerPort": 1, "hostPort": 80}]
    container = {"name": "c", "image": "i", "ports": ports}
    pod = demand(labels={"app": "x"}, containers=[container], **near("kubernetes.io/hostname", "x"))
    snapshot.place(pod, "n")
    node = snapshot.nodes["n"]
    assert not node.has_free(pod.ports[0])
    assert snapshot.living("default", parse_labels("app=x")) == {"n": 1}
    assert list(snapshot.anti_affinity.values()) == [{"n": 1}]
    snapshot.remove(pod.uid)
    assert node.has_free(pod.ports[0])
    assert snapshot.living("default", parse_labels("app=x")) == {}
    assert snapshot.anti_affinity == snapshot.pull == {}


def test_pods_of_a_node_that_is_not_known_yet_count_once_it_is() -> None:
    snapshot = cluster()
    snapshot.place(demand(requests={"cpu": "1"}), "late")
    assert snapshot.nodes == {}
    snapshot.put_node(new_node("late"))
    assert snapshot.nodes["late"].free_cpu == 3000
    snapshot.remove_node("late")
    snapshot.put_node(new_node("late"))
    assert snapshot.nodes["late"].free_cpu == 3000


def test_neighbours_move_with_the_labels_of_their_node() -> None:
    snapshot = cluster(new_node("n", labels={"zone": "a"}))
    snapshot.place(demand(**near("zone", "x")), "n")
    assert list(snapshot.anti_affinity.values()) == [{"a": 1}]
    snapshot.put_node(new_node("n", labels={"zone": "b"}))
    assert list(snapshot.anti_affinity.values()) == [{"b": 1}]


def test_pods_that_are_being_deleted_no_longer_count_for_spreading() -> None:
    snapshot = cluster(new_node("n"))
    leaving = {"deletionTimestamp": "2030-01-01T00:00:00Z"}
    snapshot.place(demand(labels={"app": "x"}, metadata=leaving), "n")
    assert snapshot.living("default", parse_labels("app=x")) == {}


def test_any_stretch_of_nodes_is_spread_over_the_zones() -> None:
    zones = {"topology.kubernetes.io/zone": "a"}, {"topology.kubernetes.io/zone": "b"}
    nodes = [new_node(f"n{i}", labels=zones[i // 3]) for i in range(4)]
    assert [node.name for node in cluster(*nodes).order] == ["n0", "n3", "n1", "n2"]


def test_as_if_pods_were_away_is_over_when_it_is_over() -> None:
    snapshot = cluster(new_node("n"))
    pods = [demand(f"p{i}", requests={"cpu": "1"}) for i in range(3)]
    for pod in pods:
        snapshot.place(pod, "n")
    node = snapshot.nodes["n"]
    with snapshot.without_pods(node, pods) as turn:
        assert node.free_cpu == 4000
        turn(pods[0], True)
        assert node.free_cpu == 3000
        turn(pods[0], False)
    assert node.free_cpu == 1000
    with snapshot.with_pods(node, [demand("more", requests={"cpu": "1"})]):
        assert node.free_cpu == 0
    assert node.free_cpu == 1000


def test_a_pod_has_one_nomination_at_most() -> None:
    snapshot, pod = cluster(), demand()
    snapshot.nominate(pod, "a")
    snapshot.nominate(pod, "b")
    assert set(snapshot.nominated) == {"b"}
    snapshot.nominate(pod, "")
    assert snapshot.nominated == {}
    assert snapshot.nomination(pod.uid) == ""


_NODES = [new_node(f"n{i}", labels={"zone": f"z{i % 2}"}) for i in range(3)]
_SHIFTED = [new_node(f"n{i}", labels={"zone": f"z{i // 2}"}) for i in range(3)]
_PODS = [
    demand(
        f"p{i}",
        labels={"app": f"a{i % 2}"},
        requests={"cpu": f"{i + 1}00m"},
        **(near("zone", f"a{i % 2}") if i % 3 else {}),
    )
    for i in range(6)
]
_CHANGES = st.one_of(
    st.tuples(st.just("place"), st.sampled_from(_PODS), st.sampled_from(["n0", "n1", "n2"])),
    st.tuples(st.just("remove"), st.sampled_from(_PODS), st.just("")),
    st.tuples(st.just("node"), st.sampled_from(_NODES + _SHIFTED), st.just("")),
    st.tuples(st.just("gone"), st.sampled_from(_NODES), st.just("")),
)


@given(st.lists(_CHANGES, max_size=25))
def test_sums_kept_up_are_those_made_anew(changes: list[tuple[str, Any, str]]) -> None:
    kept, nodes, homes = Snapshot(), dict[str, Node](), dict[str, tuple[PodDemand, str]]()
    for what, obj, where in changes:
        if what == "place":
            kept.place(obj, where)
            homes[obj.uid] = (obj, where)
        elif what == "remove":
            kept.remove(obj.uid)
            homes.pop(obj.uid, None)
        elif what == "node":
            kept.put_node(obj)
            nodes[obj.metadata.name] = obj
        else:
            kept.remove_node(obj.metadata.name)
            nodes.pop(obj.metadata.name, None)
    fresh = cluster(*nodes.values())
    for pod, where in homes.values():
        fresh.place(pod, where)
    assert kept.anti_affinity == fresh.anti_affinity
    assert kept.pull == fresh.pull
    everything = parse_labels("app")
    assert kept.living("default", everything) == fresh.living("default", everything)
    for name, node in fresh.nodes.items():
        assert kept.nodes[name].free_cpu == node.free_cpu
        assert kept.nodes[name].pods.keys() == node.pods.keys()


def test_changes_of_labels_and_nodes_reach_the_order_and_the_topologies() -> None:
    snapshot = cluster(new_node("a", labels={"zone": "1"}), new_node("b"))
    zones, both = frozenset({"zone"}), frozenset({"zone", "kubernetes.io/hostname"})

    def seen(topologies: frozenset[str]) -> list[str]:
        return [state.name for state in snapshot.within(topologies)]

    assert (seen(zones), seen(both), seen(zones)) == (["a"], ["a"], ["a"])
    snapshot.put_node(new_node("b", labels={"zone": "2"}))
    assert seen(zones) == ["a", "b"]
    snapshot.put_node(new_node("c", labels={"zone": "3"}))
    assert seen(zones) == ["a", "b", "c"]
    snapshot.remove_node("a")
    assert (seen(zones), [state.name for state in snapshot.order]) == (["b", "c"], ["b", "c"])


def test_a_label_of_a_zone_that_changes_moves_the_node_in_the_order() -> None:
    zone = "topology.kubernetes.io/zone"
    snapshot = cluster(*(new_node(f"n{i}", labels={zone: "a"}) for i in range(3)))
    assert [node.name for node in snapshot.order] == ["n0", "n1", "n2"]
    snapshot.put_node(new_node("n2", labels={zone: "b"}))
    assert [node.name for node in snapshot.order] == ["n0", "n2", "n1"]


def test_a_node_that_changes_without_its_labels_offers_the_new_amounts() -> None:
    snapshot = cluster(new_node("n"))
    snapshot.put_node(new_node("n", cpu="2"))
    assert snapshot.nodes["n"].free_cpu == 2000


def test_tainted_and_cordoned_nodes_are_listed_as_long_as_they_are() -> None:
    snapshot = cluster(new_node("plain"))
    taints = [{"key": "k", "effect": effect} for effect in ("NoSchedule", "PreferNoSchedule")]
    marked = new_node("n", taints=taints, unschedulable=True)

    def lists() -> tuple[set[str], set[str], set[str]]:
        return {*snapshot.hard_tainted}, {*snapshot.soft_tainted}, {*snapshot.unschedulable}

    snapshot.put_node(marked)
    assert lists() == ({"n"}, {"n"}, {"n"})
    snapshot.put_node(new_node("n"))
    assert lists() == (set(), set(), set())
    snapshot.put_node(marked)
    snapshot.remove_node("n")
    assert lists() == (set(), set(), set())


def test_a_measured_node_keeps_the_load_of_its_pods() -> None:
    snapshot = cluster(new_node("n"), new_node("idle"))
    none = CpuAndMemory(0, 0)
    node, idle = snapshot.nodes["n"], snapshot.nodes["idle"]
    node.load = Load(
        measured=False,
        now=none,
        expected=none,
        usual=CpuAndMemory(7, 8),
        pods_cpu=6,
        pods=1,
        known=1,
    )
    for name in ("n", "idle", "unknown"):
        snapshot.measure_node(name, CpuAndMemory(100, 200))
    assert (node.load.now, node.load.usual) == (CpuAndMemory(100, 200), CpuAndMemory(7, 8))
    assert node.load.other_cpu == 94
    assert idle.load is None
    assert snapshot.usage.node("unknown") == CpuAndMemory(100, 200)


def test_a_measured_pod_makes_its_node_be_added_up_again() -> None:
    snapshot, pod = cluster(new_node("n")), demand(metadata=OWNED)
    snapshot.place(pod, "n")
    node, stable = snapshot.nodes["n"], constant_usage(100)

    def is_kept(uid: str, usage: PodUsage) -> bool:
        none = CpuAndMemory(0, 0)
        node.load = Load(
            measured=False, now=none, expected=none, usual=none, pods_cpu=0, pods=1, known=1
        )
        snapshot.measure_pod(uid, usage)
        return node.load is not None

    assert not is_kept(pod.uid, stable)
    # The load of a node that is not measured itself is the sum of its pods.
    assert not is_kept(pod.uid, stable)
    snapshot.measure_node("n", CpuAndMemory(1, 1))
    assert is_kept(pod.uid, stable)
    assert not is_kept(pod.uid, constant_usage(900))
    assert is_kept("a pod on no node", stable)


def test_siblings_of_a_measured_pod_are_expected_to_use_as_much() -> None:
    snapshot = cluster(new_node("n"))
    first, second = demand("first", metadata=OWNED), demand("second", metadata=OWNED)
    snapshot.place(first, "n")
    snapshot.measure_pod(first.uid, constant_usage(300))
    alone = snapshot.usage.expectation(demand())
    snapshot.measure_pod("unknown", constant_usage(9000))
    assert snapshot.usage.expectation(second) == ExpectedUsage(CpuAndMemory(300, 300), "siblings")
    assert snapshot.usage.expectation(demand()) == alone


def test_a_pod_is_found_on_its_node_whether_that_is_known_or_not() -> None:
    snapshot = cluster(new_node("n"))
    here, astray, gone = demand("here"), demand("astray"), demand("gone")
    snapshot.place(here, "n")
    snapshot.place(astray, "late")
    snapshot.place(gone, "late")
    assert [snapshot.home(each.uid) for each in (here, astray)] == ["n", "late"]
    assert [snapshot.placed(each.uid) for each in (here, astray)] == [here, astray]
    snapshot.remove(gone.uid)
    assert (snapshot.home(gone.uid), snapshot.placed(gone.uid)) == ("", None)
    snapshot.put_node(new_node("late"))
    assert [*snapshot.nodes["late"].pods.values()] == [astray]


def test_the_last_pod_of_an_unknown_node_leaves_nothing_behind() -> None:
    snapshot, pod = cluster(), demand()
    snapshot.place(pod, "late")
    snapshot.remove(pod.uid)
    snapshot.put_node(new_node("late"))
    assert snapshot.nodes["late"].pods == {}


def test_pods_brought_back_stay_when_the_others_return() -> None:
    snapshot = cluster(new_node("n"))
    pod = demand(requests={"cpu": "1"}, labels={"app": "x"})
    snapshot.place(pod, "n")
    with snapshot.without_pods(snapshot.nodes["n"], [pod]) as turn:
        turn(pod, True)
    assert snapshot.nodes["n"].free_cpu == 3000
    assert snapshot.living("default", parse_labels("app=x")) == {"n": 1}


def test_neighbours_are_those_meant_by_all_terms_in_the_namespaces_they_reach() -> None:
    snapshot = cluster(new_node("a"), new_node("b"), namespaces={"far": {"team": "x"}})
    leaving = {"deletionTimestamp": "2030-01-01T00:00:00Z"}
    for labels, namespace, node, meta in (
        ({"app": "web"}, "elsewhere", "a", {}),
        ({"app": "web"}, "far", "a", {}),
        ({"app": "web"}, "default", "a", {}),
        ({"app": "web", "tier": "1"}, "default", "a", {}),
        ({"app": "web", "tier": "1"}, "default", "b", leaving),
        ({"tier": "1"}, "default", "b", {}),
    ):
        pod = demand(labels=labels, namespace=namespace, metadata=meta)
        snapshot.place(pod, node)
    selectors = {"matchLabels": {"app": "web"}}, {"matchLabels": {"tier": "1"}}
    team = {"matchLabels": {"team": "x"}}
    web, tier = (affinity_term(labelSelector=each) for each in selectors)
    of_team = affinity_term(labelSelector=selectors[0], namespaceSelector=team)
    assert snapshot.matching((web,)) == {"a": 2, "b": 1}
    assert snapshot.matching((web, tier)) == {"a": 1, "b": 1}
    assert snapshot.matching((of_team,)) == {"a": 1}
    assert snapshot.matching((web, of_team)) == {}
    assert snapshot.living("default", parse_labels("tier=1")) == {"a": 1, "b": 1}
    assert snapshot.namespace_labels("far") == {"team": "x"}
    assert snapshot.namespace_labels("elsewhere") == {}


def test_comparisons_are_the_terms_times_the_different_labels() -> None:
    snapshot, picky = cluster(new_node("n")), demand(**near("zone", "x"))
    assert (picky.terms, snapshot.comparisons(picky)) == (2, 0)
    pods = [demand(labels={"app": app}, namespace=of) for app in "ab" for of in ("one", "two")]
    for pod in (*pods, demand(labels={"app": "a"}, namespace="one")):
        snapshot.place(pod, "n")
    assert (snapshot.comparisons(picky), snapshot.comparisons(demand())) == (8, 0)
    for pod in pods[:3]:
        snapshot.remove(pod.uid)
    assert snapshot.comparisons(picky) == 4
    snapshot.remove(pods[3].uid)
    assert snapshot.comparisons(picky) == 2


def test_preferred_neighbours_pull_with_their_weight() -> None:
    snapshot = cluster(new_node("n"))
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
    wish = [{"weight": 30, "podAffinityTerm": term}]
    affinity = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wish}}
    pods = [demand(affinity=affinity) for _ in range(2)]
    for pod in pods:
        snapshot.place(pod, "n")
    assert [*snapshot.pull.values()] == [{"n": -60}]
    snapshot.remove(pods[0].uid)
    assert [*snapshot.pull.values()] == [{"n": -30}]
