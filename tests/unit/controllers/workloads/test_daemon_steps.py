"""What a DaemonSet does next, without a server: what never happens during an update."""

from datetime import UTC, datetime
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kedge.api.apps_v1.daemon_set import RESOURCE, DaemonSet, DaemonSetStatus
from kedge.api.core_v1.node import RESOURCE as NODES
from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.api.core_v1.pod.pod import Pod
from kedge.controllers.workloads.daemon_nodes import HASH, node_of
from kedge.controllers.workloads.daemon_steps import (
    DaemonSetSteps,
    DaemonSetView,
    counted,
    placed,
    rolling_needs,
    standing_needs,
    surge,
    unavailable,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def daemon_set(**pace: Any) -> DaemonSet:
    strategy = {"type": "RollingUpdate", "rollingUpdate": pace}
    spec = {"template": {"spec": {"containers": [{"name": "c"}]}}, "updateStrategy": strategy}
    return RESOURCE.strategy.default(
        RESOURCE.from_document({"metadata": {"name": "d"}, "spec": spec})
    )


def view(owner: DaemonSet, count: int) -> DaemonSetView:
    nodes = [NODES.from_document({"metadata": {"name": f"n{i}"}}) for i in range(count)]
    return DaemonSetView(owner, "new", nodes, NOW)


class World:
    """Nodes with pods on them."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self._named = 0

    def add(self, node: str, hash_: str, *, ready: bool) -> None:
        self._named += 1
        self.put(f"p{self._named:03}", node, hash_, ready=ready)

    def put(self, name: str, node: str, hash_: str, *, ready: bool, leaving: bool = False) -> None:
        meta: dict[str, Any] = {"name": name, "uid": name, "labels": {HASH: hash_}}
        if leaving:
            meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        condition = {
            "type": "Ready",
            "status": "True" if ready else "False",
            "lastTransitionTime": "2025-12-31T00:00:00Z",
        }
        status = {"phase": "Running", "conditions": [condition]}
        self.pods[name] = PODS.from_document(
            {"metadata": meta, "spec": {"nodeName": node}, "status": status}
        )

    def change(self, name: str, **how: bool) -> None:
        old = self.pods[name]
        self.put(name, node_of(old), old.metadata.labels[HASH], **{"ready": True, **how})

    def meet(self, needs: DaemonSetSteps) -> None:
        for node in needs.nodes:
            self.add(node, "new", ready=False)
        for each in needs.unwanted:
            self.change(each.metadata.name, leaving=True)

    def served(self) -> set[str]:
        """The nodes with a pod that is available and not about to go."""
        return {
            node_of(each)
            for each in self.pods.values()
            if each.status.conditions[0].status == "True" and not each.metadata.deletionTimestamp
        }

    def progress(self, dice: Random) -> None:
        """Pods get ready and pods go, some of them, in whatever order."""
        for name, each in list(self.pods.items()):
            if dice.random() < 0.5:
                continue
            if each.metadata.deletionTimestamp:
                del self.pods[name]
            else:
                self.change(name)


def roll(owner: DaemonSet, count: int, dice: Random) -> tuple[int, int]:
    """Update all nodes; how many were without a pod at worst, and how many had two."""
    here, world = view(owner, count), World()
    for i in range(count):
        world.add(f"n{i}", "old", ready=True)
    unserved = doubled = 0
    for _ in range(400):
        for needs_of in (standing_needs, rolling_needs):
            world.meet(needs_of(here, placed(world.pods.values())))
        unserved = max(unserved, count - len(world.served()))
        staying = [each for each in world.pods.values() if not each.metadata.deletionTimestamp]
        doubled = max(doubled, len(staying) - len({node_of(each) for each in staying}))
        hashes = [each.metadata.labels[HASH] for each in world.pods.values()]
        if hashes == ["new"] * count and len(world.served()) == count:
            return unserved, doubled
        world.progress(dice)
    raise AssertionError("the update never ended")


@given(st.integers(1, 8), st.integers(1, 4), st.integers())
def test_no_more_pods_are_missing_than_may_be(count: int, most: int, seed: int) -> None:
    unserved, doubled = roll(daemon_set(maxUnavailable=most), count, Random(seed))
    assert unserved <= most
    assert doubled == 0


@given(st.integers(1, 8), st.integers(1, 4), st.integers())
def test_with_surge_no_node_is_ever_without_a_pod(count: int, most: int, seed: int) -> None:
    unserved, doubled = roll(daemon_set(maxSurge=most, maxUnavailable=0), count, Random(seed))
    assert unserved == 0
    assert doubled <= most


def test_percentages_are_of_the_nodes_that_fit_and_rounded_up() -> None:
    here, world = view(daemon_set(maxUnavailable="26%"), 4), World()
    for i in range(4):
        world.add(f"n{i}", "old", ready=True)
    assert len(rolling_needs(here, placed(world.pods.values())).unwanted) == 2


def test_a_pod_that_is_for_no_node_in_particular_is_left_alone() -> None:
    here, world = view(daemon_set(), 1), World()
    world.put("stray", "", "old", ready=False)
    needs = standing_needs(here, placed(world.pods.values()))
    assert (needs.nodes, needs.unwanted) == (["n0"], [])


# One step from one state.


def named_node(name: str, *effects: str) -> Any:
    taints = [{"key": "k", "effect": effect} for effect in effects]
    return NODES.from_document({"metadata": {"name": name}, "spec": {"taints": taints}})


def pod_on(
    name: str,
    node: str = "n0",
    hash_: str = "new",
    *,
    ready: bool = True,
    leaving: bool = False,
    phase: str = "Running",
    bound: bool = True,
) -> Pod:
    """A pod that is bound to a node, or only meant for it."""
    world = World()
    world.put(name, node, hash_, ready=ready, leaving=leaving)
    pod = world.pods[name]
    spec = pod.spec
    if not bound:
        match = {"key": "metadata.name", "operator": "In", "values": [node]}
        terms = {"nodeSelectorTerms": [{"matchFields": [match]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        spec = PODS.from_document({"spec": {"affinity": {"nodeAffinity": required}}}).spec
    return replace(pod, spec=spec, status=replace(pod.status, phase=phase))


def steps(found: DaemonSetSteps) -> tuple[list[str], list[str], list[tuple[str, str]]]:
    """Where pods are made, and the names of those that are deleted as unwanted and as ended."""
    ended = [(pod.metadata.name, node) for pod, node in found.ended]
    return found.nodes, [pod.metadata.name for pod in found.unwanted], ended


def standing(
    *pods: Pod, nodes: list[Any] | None = None, **pace: Any
) -> tuple[list[str], list[str], list[tuple[str, str]]]:
    nodes = [named_node("n0")] if nodes is None else nodes
    return steps(standing_needs(DaemonSetView(daemon_set(**pace), "new", nodes, NOW), placed(pods)))


def test_a_pod_that_ended_and_is_leaving_gives_way_to_the_next() -> None:
    gone = pod_on("gone", phase="Failed", leaving=True)
    assert standing(gone) == (["n0"], [], [])
    assert standing(pod_on("leaving", leaving=True)) == ([], [], [])
    assert standing(pod_on("failed", phase="Failed")) == ([], [], [("failed", "n0")])


def test_the_oldest_bound_pod_of_a_node_stays() -> None:
    pods = pod_on("a", bound=False), pod_on("b"), pod_on("c")
    assert standing(*pods) == ([], ["c", "a"], [])
    assert standing(pods[0], pods[2]) == ([], ["a"], [])


def test_taints_decide_which_pods_stay_and_where_none_is_made() -> None:
    nodes = [
        named_node("open"),
        named_node("closed", "NoSchedule"),
        named_node("kept", "NoSchedule"),
        named_node("cleared", "NoExecute"),
    ]
    pods = (
        pod_on("kept", "kept"),
        pod_on("kept-more", "kept"),
        pod_on("cleared", "cleared"),
        pod_on("cleared-leaving", "cleared", leaving=True),
    )
    assert standing(*pods, nodes=nodes) == (["open"], ["kept-more", "cleared"], [])
    failed = pod_on("failed", "closed", phase="Failed")
    surging = standing(failed, nodes=nodes, maxSurge=1, maxUnavailable=0)
    assert surging == (["open"], [], [("failed", "closed")])


def test_pods_that_wait_for_a_node_that_is_gone_are_deleted() -> None:
    waiting = pod_on("waiting", "gone", bound=False)
    leaving = pod_on("leaving", "gone", bound=False, leaving=True)
    bound = pod_on("bound", "gone")
    here = pod_on("here", bound=False)
    assert standing(waiting, leaving, bound, here) == ([], ["waiting"], [])


def test_with_surge_a_node_keeps_an_old_pod_until_the_new_one_is_available() -> None:
    def surging(*pods: Pod) -> tuple[list[str], list[str], list[tuple[str, str]]]:
        return standing(*pods, maxSurge=1, maxUnavailable=0)

    old, new = pod_on("old", hash_="old"), pod_on("new")
    starting, broken = pod_on("starting", ready=False), pod_on("broken", hash_="old", ready=False)
    assert surging(old, starting) == ([], [], [])
    assert surging(old, new) == ([], ["old"], [])
    assert surging(broken, starting) == ([], ["broken"], [])
    assert surging(old, pod_on("older", hash_="old")) == ([], ["older"], [])
    assert surging(new, pod_on("newer")) == ([], ["newer"], [])
    assert surging(pod_on("gone", leaving=True)) == (["n0"], [], [])
    assert surging(new) == ([], [], [])


def test_one_node_may_have_two_pods_however_small_the_percentage() -> None:
    old = [pod_on(f"p{i}", f"n{i}", "old") for i in range(4)]
    here = view(daemon_set(maxSurge="1%", maxUnavailable=0), 4)
    assert steps(rolling_needs(here, placed(old))) == (["n0"], [], [])


def test_a_set_that_is_updated_by_hand_has_no_pace() -> None:
    by_hand = replace(daemon_set().spec.updateStrategy, type="OnDelete")
    owner = daemon_set(maxUnavailable=3, maxSurge=2)
    unpaced = replace(owner.spec.updateStrategy, rollingUpdate=None)
    paced = replace(owner.spec.updateStrategy, type="OnDelete")
    assert (surge(owner, 9), unavailable(owner, 9)) == (2, 3)
    for strategy in (by_hand, unpaced, paced):
        changed = replace(owner, spec=replace(owner.spec, updateStrategy=strategy))
        assert (surge(changed, 9), unavailable(changed, 9)) == (0, 0)


def rolling(*pods: Pod, count: int = 3, **pace: Any) -> tuple[list[str], list[str]]:
    made, unwanted, ended = steps(rolling_needs(view(daemon_set(**pace), count), placed(pods)))
    assert ended == []
    return made, unwanted


def test_broken_old_pods_go_first_and_count_as_missing() -> None:
    broken = pod_on("broken", "n0", "old", ready=False)
    old = [pod_on(f"old{i}", f"n{i}", "old") for i in (1, 2)]
    assert rolling(broken, *old, maxUnavailable=1) == ([], ["broken"])
    assert rolling(broken, *old, maxUnavailable=2) == ([], ["broken", "old1"])


def test_an_update_waits_for_nodes_without_a_pod_or_with_too_many() -> None:
    old = [pod_on(f"old{i}", f"n{i}", "old") for i in (1, 2)]
    crowds = (
        (),
        (pod_on("a"), pod_on("b")),
        (pod_on("a", hash_="old"), pod_on("b", hash_="old")),
        (pod_on("a"), pod_on("b", hash_="old")),
        (pod_on("a", ready=False),),
    )
    for crowd in crowds:
        assert rolling(*crowd, *old, maxUnavailable=1) == ([], [])
        assert rolling(*crowd, *old, maxUnavailable=2) == ([], ["old1"])
    assert rolling(pod_on("a"), *old, maxUnavailable=1) == ([], ["old1"])


def test_a_surge_counts_the_nodes_that_have_two_pods_already() -> None:
    old = [pod_on(f"old{i}", f"n{i}", "old") for i in (1, 2)]
    starting = pod_on("starting", ready=False)
    crowds = (
        (pod_on("a"), pod_on("b")),
        (pod_on("a", hash_="old"), pod_on("b", hash_="old")),
        (pod_on("a", hash_="old"), starting),
    )
    for crowd in crowds:
        assert rolling(*crowd, *old, maxSurge=1, maxUnavailable=0) == ([], [])
        assert rolling(*crowd, *old, maxSurge=2, maxUnavailable=0) == (["n1"], [])
    done = pod_on("a", hash_="old"), pod_on("b")
    assert rolling(*done, *old, maxSurge=1, maxUnavailable=0) == (["n1"], ["a"])
    broken = pod_on("broken", hash_="old", ready=False)
    assert rolling(broken, *old, maxSurge=1, maxUnavailable=0) == (["n0", "n1"], [])


def test_a_misplaced_pod_goes_when_another_is_available_in_its_place() -> None:
    misplaced = pod_on("misplaced", "elsewhere", "old")
    more = pod_on("more", "elsewhere-too", "old")
    broken = pod_on("broken", "elsewhere", "old", ready=False)
    new, other = pod_on("new"), pod_on("other", "n1")
    pace: dict[str, Any] = {"maxSurge": 1, "maxUnavailable": 0}
    assert rolling(misplaced, broken, new, count=1, **pace) == ([], [])
    assert rolling(misplaced, new, count=1, **pace) == ([], ["misplaced"])
    assert rolling(misplaced, more, new, other, count=3, **pace) == ([], ["misplaced"])
    starting = pod_on("starting", ready=False)
    assert rolling(misplaced, starting, count=1, **pace) == ([], [])
    assert rolling(broken, new, count=1, **pace) == ([], ["broken"])
    assert rolling(misplaced, new, other, count=3, **pace) == ([], [])


def test_the_status_counts_the_oldest_pod_of_each_node() -> None:
    nodes = [*(named_node(f"n{i}") for i in range(4)), named_node("closed", "NoSchedule")]
    pods = placed(
        [
            pod_on("a", "n0", "old"),
            pod_on("b", "n0"),
            pod_on("c", "n1", ready=False),
            pod_on("d", "n2"),
            pod_on("e", "closed"),
            pod_on("f", "closed"),
        ]
    )
    owner = daemon_set()
    owner = replace(owner, metadata=replace(owner.metadata, generation=7))
    assert counted(DaemonSetView(owner, "new", nodes, NOW), pods, 3) == DaemonSetStatus(
        desiredNumberScheduled=4,
        currentNumberScheduled=3,
        numberMisscheduled=1,
        numberReady=2,
        updatedNumberScheduled=2,
        numberAvailable=2,
        numberUnavailable=2,
        observedGeneration=7,
        collisionCount=3,
    )
