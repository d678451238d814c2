"""Usage of simulated pods: windows of shapes, and frames."""

from kedge.api.core_v1.simulation import NOTHING, UsageShape
from kedge.metrics.frame import index
from kedge.metrics.frame_codec import decode, encode
from kedge.simulated_nodes.pod_usage import ContainerUsage, Row, SimulatedPodUsage, frame, row

HALF = UsageShape(0.5, 0.5)
MIB = UsageShape(1 << 20, 1 << 20)
NOW = 1_893_456_000.0


def number(values: Row, window: str, statistic: str, resource: str = "cpu") -> float:
    return round(values[index(window, statistic, resource)], 3)


def since(seconds: float, cpu: UsageShape) -> ContainerUsage:
    """Return the usage of a container that began so many seconds ago."""
    return ContainerUsage().changed(NOW - seconds, NOW - seconds, cpu, MIB)


def test_a_constant_is_the_same_in_all_windows() -> None:
    values = row(since(5, HALF), NOW)
    assert {number(values, w, s) for w in ("10s", "1d") for s in ("mean", "max", "95th")} == {0.5}
    assert number(values, "1h", "max", "memory") == 1 << 20


def test_a_change_shows_in_short_windows_first() -> None:
    usage = since(7200, HALF).changed(NOW - 60, NOW - 7200, UsageShape(2.0, 2.0), MIB)
    values = row(usage, NOW)
    assert number(values, "10s", "mean") == 2.0
    assert number(values, "1m", "mean") == 2.0
    assert number(values, "1h", "max") == 2.0
    assert 0.5 < number(values, "1h", "mean") < 0.6


def test_an_hour_that_was_skipped_is_part_of_the_windows() -> None:
    values = row(since(3600, UsageShape(0.0, 1.0, 3600.0)), NOW)
    assert abs(number(values, "1h", "mean") - 0.5) < 0.01
    assert number(values, "1h", "max") > 0.99
    assert number(values, "10s", "max") < 0.01


def test_a_period_that_divides_the_window_does_not_hide_the_peaks() -> None:
    values = row(since(86400, UsageShape(0.0, 1.0, 3600.0)), NOW)
    assert abs(number(values, "1d", "mean") - 0.5) < 0.02
    assert number(values, "1d", "max") > 0.95


def test_a_container_that_ended_uses_nothing() -> None:
    values = row(since(600, HALF).ended(NOW - 60), NOW)
    assert number(values, "1m", "mean") == 0.0
    assert 0.4 < number(values, "1h", "mean") < 0.5


def test_only_changes_that_a_window_can_show_are_kept() -> None:
    usage = since(0, HALF)
    for hour in range(100):
        shape = UsageShape(float(hour), float(hour))
        usage = usage.changed(NOW + 3600 * hour + 1, NOW, shape, NOTHING)
    assert len(usage.segments) <= 27


def test_a_frame_has_the_node_its_pods_and_their_containers() -> None:
    one = SimulatedPodUsage("default", "one", "u1", {"a": since(60, HALF)})
    two = SimulatedPodUsage("default", "two", "u2", {"a": since(60, HALF), "b": since(30, HALF)})
    none = SimulatedPodUsage("default", "new", "u3", {})
    tick = int(NOW) // 10
    made = frame(("n", "uid"), since(60, HALF), [one, two, none], tick=tick, now=NOW, resolution=10)
    found = decode(encode(made))
    assert (found.node, found.end_tick, [each.name for each in found.pods]) == (
        "n",
        tick,
        ["one", "two"],
    )
    cpu = index("1m", "mean", "cpu")
    assert found.row(0)[cpu] == 2.0
    assert [found.row(pod.row)[cpu] for pod in found.pods] == [0.5, 1.0]
    assert [len(pod.containers) for pod in found.pods] == [1, 2]


def test_times_of_a_frame_are_those_of_its_ticks_after_the_clock_was_moved() -> None:
    tick = int(NOW) // 10
    usage = since(60, HALF)
    made = frame(("n", "u"), usage, [], tick=tick - 360, now=NOW, resolution=10)
    assert made.since == (tick - 360) * 10 - 60
