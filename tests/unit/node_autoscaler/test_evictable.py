"""Pods that keep their node from being removed."""

from typing import Any

import pytest

from kedge.node_autoscaler.evictable import SAFE_TO_EVICT, obstacle
from kedge.testing.node_autoscaler import budget, pod

EMPTY: Any = {"volumes": [{"name": "data", "emptyDir": {}}]}
MEMORY: Any = {"volumes": [{"name": "data", "emptyDir": {"medium": "Memory"}}]}
HOST: Any = {"volumes": [{"name": "host", "hostPath": {"path": "/tmp"}}]}
SAFE = {"annotations": {SAFE_TO_EVICT: "true"}}
UNSAFE = {"annotations": {SAFE_TO_EVICT: "false"}}
DATA_IS_SAFE = {"annotations": {f"{SAFE_TO_EVICT}-local-volumes": "cache,data"}}
SYSTEM = {"namespace": "kube-system"}


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (pod("a", "n"), ""),
        (pod("a", "n", meta=UNSAFE), "not safe to evict by its annotation"),
        (pod("a", "n", owner=""), "no controller would create it again"),
        (pod("a", "n", owner="", meta=SAFE), ""),
        (pod("a", "n", **EMPTY), "volume data is local data"),
        (pod("a", "n", **MEMORY), ""),
        (pod("a", "n", **HOST), "volume host is local data"),
        (pod("a", "n", meta=SAFE, **HOST), ""),
        (pod("a", "n", meta=DATA_IS_SAFE, **EMPTY), ""),
        (pod("a", "n", meta=SYSTEM), "a system pod without a PodDisruptionBudget"),
    ],
)
def test_a_pod_may_be_evicted_or_not(found: Any, why: str) -> None:
    assert obstacle(found, []) == why


@pytest.mark.parametrize(("allowed", "kept"), [(0, True), (1, False)])
def test_a_budget_counts_even_for_a_pod_that_is_safe_to_evict(allowed: int, kept: bool) -> None:
    found = pod("a", "n", meta={**SAFE, "labels": {"app": "web"}})
    assert bool(obstacle(found, [budget(allowed, app="web")])) is kept
    assert obstacle(found, [budget(0, app="other")]) == ""
