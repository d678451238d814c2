from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.controllers.autoscaling.proposal import (
    AverageUse,
    MetricSample,
    Tolerance,
    UnknownUsage,
    Utilization,
    propose,
    requests_of,
)
from kedge.machinery.durations import format_time

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def pod(
    name: str,
    *,
    phase: str = "Running",
    ready: bool = True,
    age: float = 3600,
    since: float | None = None,
    **more: Any,
) -> Pod:
    """A pod that was started `age` seconds ago and is ready, or not, since `since` seconds."""
    changed = NOW - timedelta(seconds=age - 5 if since is None else since)
    document = {
        "metadata": {"name": name, **more.pop("metadata", {})},
        "spec": {
            "containers": [{"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
            **more,
        },
        "status": {
            "phase": phase,
            "startTime": format_time(NOW - timedelta(seconds=age)),
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True" if ready else "False",
                    "lastTransitionTime": format_time(changed),
                }
            ],
        },
    }
    return RESOURCE.decode(msgspec.json.encode(document))


def sample(value: int) -> MetricSample:
    return MetricSample(value, NOW, MINUTE)


def replicas(
    pods: list[Pod],
    values: dict[str, int],
    percent: int = 50,
    *,
    resource: str = "cpu",
    current: int = 0,
) -> int:
    """What is proposed for pods that request a whole core each."""
    target = Utilization(percent, {each.metadata.name: 1000 for each in pods})
    return propose(
        current or len(pods),
        target,
        pods,
        {name: sample(value) for name, value in values.items()},
        resource=resource,
        tolerance=Tolerance(),
        now=NOW,
    ).replicas


@pytest.mark.parametrize(
    ("used", "wanted"),
    [(500, 3), (540, 3), (560, 4), (1000, 6), (460, 3), (430, 3), (300, 2), (0, 0)],
)
def test_replicas_follow_the_ratio_beyond_the_tolerance(used: int, wanted: int) -> None:
    pods = [pod(name) for name in "abc"]
    assert replicas(pods, dict.fromkeys("abc", used)) == wanted


def test_what_was_measured_is_told() -> None:
    pods = [pod("a"), pod("b")]
    target = Utilization(50, {"a": 1000, "b": 1000})
    samples = {"a": sample(300), "b": sample(500)}
    found = propose(2, target, pods, samples, resource="cpu", tolerance=Tolerance(), now=NOW)
    assert (found.replicas, found.average, found.utilization) == (2, 400, 40)


def test_an_average_needs_no_requests() -> None:
    pods = [pod("a"), pod("b")]
    samples = {"a": sample(300), "b": sample(500)}
    found = propose(
        2, AverageUse(100), pods, samples, resource="memory", tolerance=Tolerance(), now=NOW
    )
    assert (found.replicas, found.average, found.utilization) == (8, 400, None)


def test_a_pod_without_samples_dampens_both_directions() -> None:
    pods = [pod(name) for name in "abc"]
    # It counts as idle when replicas would be added, and as fully used when they would go.
    assert replicas(pods, {"a": 900, "b": 900}) == 4
    assert replicas(pods, {"a": 100, "b": 100}) == 3


def test_assumptions_never_turn_the_direction() -> None:
    pods = [pod(name) for name in "abcd"]
    assert replicas(pods, {"a": 600}) == 4


def test_pods_that_are_leaving_or_failed_do_not_count() -> None:
    leaving = pod("b", metadata={"deletionTimestamp": format_time(NOW)})
    pods = [pod("a"), leaving, pod("c", phase="Failed")]
    assert replicas(pods, {"a": 1000, "b": 1, "c": 1}) == 2


def test_a_pending_pod_holds_back_growth_but_not_shrinking() -> None:
    pods = [pod("a"), pod("b"), pod("c", phase="Pending")]
    assert replicas(pods, {"a": 700, "b": 700}) == 3
    assert replicas(pods, {"a": 100, "b": 100}) == 1


@pytest.mark.parametrize(
    ("new", "counts"),
    [
        (pod("b", ready=False, age=60), False),
        (pod("b", age=100, since=30), False),
        (pod("b", age=200, since=90), True),
        (pod("b", ready=False, age=3600, since=3590), False),
        (pod("b", ready=False, age=3600, since=10), True),
    ],
    ids=["not ready yet", "ready for less than a window", "ready", "never ready", "ready once"],
)
def test_starting_pods_do_not_count_for_cpu(new: Pod, counts: bool) -> None:
    pods = [pod("a"), new]
    # Counted, the second pod doubles the need; not counted, it stands for an idle one.
    assert replicas(pods, {"a": 500, "b": 1500}) == (4 if counts else 2)
    assert replicas(pods, {"a": 500, "b": 1500}, resource="memory") == 4


def test_nothing_is_proposed_where_nothing_is_known() -> None:
    with pytest.raises(UnknownUsage, match="no pods returned by selector"):
        replicas([], {})
    with pytest.raises(UnknownUsage, match="did not receive metrics"):
        replicas([pod("a")], {})
    with pytest.raises(UnknownUsage, match="did not receive metrics"):
        replicas([pod("a", phase="Pending")], {"a": 500})


def test_requests_are_those_of_lasting_containers() -> None:
    asks = {"resources": {"requests": {"cpu": "250m"}}}
    sidecar = {"name": "side", "image": "i", "restartPolicy": "Always", **asks}
    first = {"name": "first", "image": "i"}
    many = pod("a", initContainers=[sidecar, first])
    assert requests_of([many], "cpu") == {"a": 1250}
    assert requests_of([many], "cpu", "side") == {"a": 250}
    with pytest.raises(UnknownUsage, match="missing request for memory in container main of Pod a"):
        requests_of([many], "memory")
    with pytest.raises(UnknownUsage, match="container other not found in Pod a"):
        requests_of([many], "cpu", "other")
