"""What a DaemonSet does next, without a server: what never happens during an update."""

from datetime import UTC, datetime
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kedge.api.apps_v1.daemon_set import RESOURCE, DaemonSet
from kedge.api.core_v1.node import RESOURCE as NODES
from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.api.core_v1.pod.pod import Pod
from kedge.controllers.workloads.daemon_nodes import HASH, node_of
from kedge.controllers.workloads.daemon_steps import (
    DaemonSetSteps,
    DaemonSetView,
    placed,
    rolling_needs,
    standing_needs,
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
