from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.controllers.autoscaling.proposal import (
    MOST_REPLICAS,
    NO_MATCH,
    AverageUse,
    MetricSample,
    Proposal,
    Tolerance,
    UnknownUsage,
    Utilization,
    per_pod,
    propose,
    requests_of,
    to_value,
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


def with_status(pod: Pod, **changes: Any) -> Pod:
    return replace(pod, status=replace(pod.status, **changes))


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


@pytest.mark.parametrize(
    ("ratio", "borne"), [(0.8, False), (0.9, True), (1.0, True), (1.2, True), (1.21, False)]
)
def test_a_tolerance_includes_its_bounds(ratio: float, borne: bool) -> None:
    assert Tolerance(below=0.1, above=0.2).bears(ratio) is borne


def test_a_measure_holds_the_average_and_the_utilization() -> None:
    values = {"a": 300, "b": 500}
    assert AverageUse(200).measure(values) == (2.0, Proposal(0, 400))
    requests = {"a": 1000, "b": 600}
    assert Utilization(25, requests).measure(values) == (2.0, Proposal(0, 400, 50))
    with pytest.raises(UnknownUsage, match=f"^{NO_MATCH}$"):
        Utilization(25, {"other": 1000}).measure(values)


def test_a_pod_without_samples_is_taken_to_use_all_of_its_request_or_the_target() -> None:
    assert Utilization(50, {"a": 1000}).substitute("a") == 1000
    assert Utilization(150, {"a": 1000}).substitute("a") == 1500
    assert Utilization(50, {"a": 1000}).substitute("b") == 0
    assert AverageUse(200).substitute("a") == 200


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


def averaged(values: dict[str, int], others: Sequence[Pod], tolerance: Tolerance) -> int:
    """What is proposed for a target average of 100, with pods that have no samples."""
    pods = [*map(pod, values), *others]
    samples = {name: sample(value) for name, value in values.items()}
    return propose(
        len(pods),
        AverageUse(100),
        pods,
        samples,
        resource="memory",
        tolerance=tolerance,
        now=NOW,
    ).replicas


EXACT = Tolerance(0, 0)


@pytest.mark.parametrize(
    ("values", "tolerance", "wanted"),
    [
        # With the other pod at 0 the average is 100, and at 1 it would be 101.
        ([201], EXACT, 2),
        ([203], EXACT, 3),
        ([190, 190], Tolerance(0.1, 0.5), 3),
    ],
)
@pytest.mark.parametrize("other", [pod("x"), pod("x", phase="Pending")], ids=["silent", "pending"])
def test_a_pod_without_samples_is_idle_before_growth(
    values: list[int], tolerance: Tolerance, wanted: int, other: Pod
) -> None:
    assert averaged(dict(zip("abc", values, strict=False)), [other], tolerance) == wanted


def test_a_pod_without_samples_does_not_stop_shrinking_that_is_needed_anyway() -> None:
    assert averaged({"a": 20, "b": 20, "c": 20}, [pod("x")], Tolerance()) == 2


def test_a_pod_without_samples_changes_nothing_on_target() -> None:
    assert averaged({"a": 100}, [pod("x")], Tolerance()) == 2


def test_assumptions_never_turn_the_direction() -> None:
    pods = [pod(name) for name in "abcd"]
    assert replicas(pods, {"a": 600}) == 4


def test_pods_that_are_leaving_or_failed_do_not_count() -> None:
    leaving = pod("b", metadata={"deletionTimestamp": format_time(NOW)})
    pods = [pod("a"), leaving, pod("c", phase="Failed")]
    assert replicas(pods, {"a": 1000, "b": 1, "c": 1}) == 2
    assert replicas(pods, {"a": 1000, "b": 1000, "c": 1000}) == 2


def test_a_pending_pod_holds_back_growth_but_not_shrinking() -> None:
    pods = [pod("a"), pod("b"), pod("c", phase="Pending")]
    assert replicas(pods, {"a": 700, "b": 700}) == 3
    assert replicas(pods, {"a": 100, "b": 100}) == 1
    four = [*map(pod, "abc"), pod("d", phase="Pending")]
    assert replicas(four, dict.fromkeys("abc", 700)) == 4


@pytest.mark.parametrize(
    ("new", "counts"),
    [
        (pod("b", ready=False, age=60), False),
        (pod("b", age=100, since=30), False),
        (pod("b", age=200, since=90), True),
        (pod("b", age=299, since=60), True),
        (pod("b", age=300, since=10), True),
        (pod("b", ready=False, age=200, since=90), False),
        (pod("b", ready=False, age=3600, since=3590), False),
        (pod("b", ready=False, age=3600, since=3570), True),
        (pod("b", ready=False, age=3600, since=10), True),
        (with_status(pod("b"), conditions=[]), False),
        (with_status(pod("b"), startTime=""), False),
    ],
    ids=[
        "not ready yet",
        "ready for less than a window",
        "ready",
        "ready for a window",
        "warmed up",
        "no longer ready",
        "never ready",
        "ready after half a minute",
        "ready once",
        "without a condition",
        "not started",
    ],
)
def test_starting_pods_do_not_count_for_cpu(new: Pod, counts: bool) -> None:
    pods = [pod("a"), new]
    # Counted, the second pod triples the need; not counted, it stands for an idle one.
    assert replicas(pods, {"a": 500, "b": 2500}) == (6 if counts else 2)
    assert replicas(pods, {"a": 500, "b": 2500}, resource="memory") == 6


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


def test_a_request_of_the_pod_itself_counts_instead_of_those_of_its_containers() -> None:
    whole = pod("a", resources={"requests": {"cpu": "2"}})
    assert requests_of([whole], "cpu") == {"a": 2000}
    assert requests_of([whole], "cpu", "main") == {"a": 1000}
    with pytest.raises(UnknownUsage, match=r"^missing pod-level request for memory in Pod a$"):
        requests_of([whole], "memory")
    with pytest.raises(UnknownUsage, match="missing request for memory in container main of Pod a"):
        requests_of([pod("a", resources={})], "memory")


def test_replicas_that_bring_a_value_to_its_target_count_from_those_that_are_ready() -> None:
    pods = [pod("a"), pod("b"), pod("c", ready=False), pod("d", phase="Pending")]
    assert to_value(25_000, 10_000, 4, pods, Tolerance()) == Proposal(5, value=25_000)
    assert to_value(10_900, 10_000, 4, pods, Tolerance()) == Proposal(4, value=10_900)
    assert to_value(1 << 62, 1, 4, pods, Tolerance()).replicas == MOST_REPLICAS
    with pytest.raises(UnknownUsage, match=r"^unable to calculate ready pods: no pods returned"):
        to_value(25_000, 10_000, 4, [], Tolerance())


def test_a_value_per_pod_is_divided_by_the_replicas_that_there_are() -> None:
    assert per_pod(35_000, 10_000, 2, Tolerance()) == Proposal(4, average=17_500)
    assert per_pod(21_000, 10_000, 2, Tolerance()) == Proposal(2, average=10_500)
    assert per_pod(10_001, 10_000, 3, Tolerance()) == Proposal(2, average=3334)
    assert per_pod(35_000, 10_000, 0, Tolerance()) == Proposal(4)
    assert per_pod(1 << 62, 1, 1, Tolerance()).replicas == MOST_REPLICAS
