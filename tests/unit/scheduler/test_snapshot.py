from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kedge.api.core_v1.node_types import Node
from kedge.machinery.selectors import parse_labels
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.snapshot import Snapshot
from kedge.testing.scheduling import cluster, demand, new_node


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
