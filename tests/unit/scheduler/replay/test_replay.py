"""Ways to place pods, compared over small recordings."""

import pytest

from kedge.scheduler.replay.replay import (
    PlacementPolicy,
    SimulatedNode,
    nodes_of,
    policies,
    replay,
    weights_of,
)
from kedge.scheduler.replay.trace import Trace, TracedAmount, TracedPod

GIBIBYTE = float(1 << 30)
NODES = [SimulatedNode(f"node-{number}", 4.0, 8 * GIBIBYTE) for number in (1, 2)]


def pod(
    name: str, cores: float, at: range, memory: float = 0.1, requests: dict[str, str] | None = None
) -> TracedPod:
    amount = TracedAmount(cores, memory * GIBIBYTE)
    return TracedPod(f"default/{name}", requests or {}, dict.fromkeys(at, amount), at[0], at[-1])


def recorded(*pods: TracedPod, moments: int = 60) -> Trace:
    ordered = sorted(pods, key=lambda each: each.first)
    return Trace(tuple(60.0 * number for number in range(moments)), tuple(ordered))


def by_name(name: str) -> PlacementPolicy:
    return next(each for each in policies({"NodeUsage": 9}) if each.name == name)


def busy_and_idle() -> Trace:
    """Pods that ask for the same and use very different amounts, one after the other."""
    requests = {"cpu": "100m", "memory": "64Mi"}
    pods = [
        pod(
            f"{'busy' if n % 2 else 'idle'}{n}-0",
            1.2 if n % 2 else 0.01,
            range(n * 5, 60),
            0.1,
            requests,
        )
        for n in range(8)
    ]
    return recorded(*pods)


def test_measured_usage_spreads_pods_that_requests_do_not_tell_apart() -> None:
    trace = busy_and_idle()
    blind, seeing = (replay(trace, NODES, by_name(name)) for name in ("requests", "usage"))
    assert seeing.spread <= blind.spread
    assert seeing.peak <= blind.peak
    assert len(seeing.frames) == 60


def test_the_same_trace_gives_the_same_result() -> None:
    trace = busy_and_idle()
    first, second = (replay(trace, NODES, by_name("weights")) for _ in range(2))
    assert first == second


def test_load_above_the_capacity_is_overcommitment() -> None:
    trace = recorded(pod("a", 5.0, range(10)), moments=10)
    result = replay(trace, NODES, by_name("requests"))
    assert result.peak == pytest.approx(125)
    assert result.overcommit == pytest.approx(50)


def test_a_pod_that_exceeds_the_memory_of_its_node_is_evicted_and_placed_again() -> None:
    growing = {at: TracedAmount(0.1, (1 + at) * GIBIBYTE) for at in range(7)}
    trace = recorded(
        TracedPod("default/leak", {"memory": "1Gi"}, growing, 0, 6),
        pod("steady", 0.1, range(7), 3.0, {"memory": "6Gi"}),
        moments=7,
    )
    one = [SimulatedNode("node-1", 4.0, 8 * GIBIBYTE)]
    result = replay(trace, one, by_name("requests"))
    assert result.evictions == 2
    assert all(load <= 1 for frame in result.frames for load in frame.memory)


def test_pods_that_fit_nowhere_are_counted_and_tried_again() -> None:
    requests = {"cpu": "3"}
    trace = recorded(
        *(pod(f"p{n}", 0.5, range(0, 5 if n < 2 else 10), requests=requests) for n in range(3)),
        moments=10,
    )
    result = replay(trace, NODES, by_name("requests"))
    assert result.unplaced == 1
    assert sum(result.frames[0].cpu) == pytest.approx(0.25)
    assert sum(result.frames[9].cpu) == pytest.approx(0.125)


def test_weights_are_those_of_known_scores() -> None:
    assert weights_of("NodeUsage=5,NodeResourcesFit=0") == {"NodeUsage": 5, "NodeResourcesFit": 0}
    chosen = next(each for each in policies({"NodeResourcesFit": 0}) if each.name == "weights")
    assert "NodeResourcesFit" not in [each.name for each in chosen.scores]
    assert [each.name for each in policies(None)] == ["requests", "usage"]


@pytest.mark.parametrize("text", ["Usage=5", "NodeUsage", "NodeUsage=-1", "NodeUsage=x", ""])
def test_other_weights_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not SCORE=WEIGHT"):
        weights_of(text)


def test_nodes_come_from_a_list_of_kubectl() -> None:
    status = {"allocatable": {"cpu": "3500m", "memory": "8Gi", "pods": "110"}}
    made = nodes_of(
        {"items": [{"metadata": {"name": "a", "labels": {"z": "1"}}, "status": status}]}
    )
    assert made == [SimulatedNode("a", 3.5, 8 * GIBIBYTE, {"z": "1"})]
    with pytest.raises(ValueError, match="no allocatable"):
        nodes_of({"items": [{"metadata": {"name": "a"}}]})
