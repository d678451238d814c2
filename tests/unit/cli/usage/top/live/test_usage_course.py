"""Points of the last minute, hour and day."""

from kedge.cli.usage.top.live.usage_course import (
    HistoryPoints,
    HistoryWindow,
    TickUsage,
    UsageCourse,
)
from kedge.machinery.durations import parse_time

START = "2026-11-15T18:20:00Z"
NOON = int(parse_time(START).timestamp())


def tick(cpu: float | None) -> TickUsage:
    return TickUsage(cpu, None if cpu is None else cpu * 100)


def window(start: str, step: str, *cpu: float | None) -> HistoryWindow:
    memory = [None if each is None else each * 100 for each in cpu]
    return HistoryWindow(start, step, HistoryPoints([*cpu]), HistoryPoints(memory))


def test_nothing_is_made_up() -> None:
    course = UsageCourse()
    assert course.minute("cpu", NOON) == [None] * 60
    assert course.hour("cpu", NOON) == [None] * 360
    assert course.day("cpu") == []


def test_reports_become_points() -> None:
    course = UsageCourse()
    course.take(NOON, tick(1.0))
    course.take(NOON + 20, tick(3.0))
    assert course.hour("cpu", NOON + 20)[-4:] == [None, 1.0, None, 3.0]
    assert course.hour("memory", NOON + 20)[-1] == 300.0
    assert course.minute("cpu", NOON + 20)[-30:] == [1.0] * 10 + [None] * 10 + [3.0] * 10


def test_an_object_that_is_no_longer_reported_has_a_gap_at_the_end() -> None:
    course = UsageCourse()
    course.take(NOON, tick(1.0))
    assert course.hour("cpu", NOON + 30)[-4:] == [1.0, None, None, None]
    assert course.hour("cpu", NOON + 7200) == [None] * 360


def test_points_of_an_hour_ago_do_not_come_back() -> None:
    course = UsageCourse()
    course.take(NOON, tick(1.0))
    course.take(NOON + 3600 + 50, tick(2.0))
    assert course.hour("cpu", NOON + 3650) == [None] * 359 + [2.0]
    course.take(NOON, tick(9.0))
    assert course.hour("cpu", NOON + 3650) == [None] * 359 + [2.0]


def test_the_node_knows_seconds_and_the_time_before_the_view() -> None:
    course = UsageCourse()
    course.take(NOON + 10, tick(5.0))
    course.seed(
        {
            "1m": window(START, "1s", *[1.0, 2.0, None], *[4.0] * 57),
            "1h": window("2026-11-15T18:19:40Z", "10s", 7.0, None),
            "1d": window(START, "300s", 0.5, None),
        }
    )
    assert course.minute("cpu", NOON + 60)[:4] == [1.0, 2.0, 5.0, 4.0]
    assert course.hour("cpu", NOON + 10)[-3:] == [7.0, None, 5.0]
    assert course.day("memory") == [50.0, None]


def test_reports_go_on_where_the_points_of_the_node_end() -> None:
    course = UsageCourse()
    course.seed({"1m": window(START, "1s", *[1.0] * 60)})
    course.take(NOON + 70, tick(2.0))
    assert course.minute("cpu", NOON + 70) == [1.0] * 50 + [2.0] * 10
