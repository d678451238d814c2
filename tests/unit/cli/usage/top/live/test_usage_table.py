"""The table of the live view."""

from typing import Any

import pytest

from kedge.cli.output.plot import ASCII, UNICODE
from kedge.cli.usage.top.live.screen_lines import ScreenLine, TextRole
from kedge.cli.usage.top.live.text_cells import width
from kedge.cli.usage.top.live.usage_course import TickUsage, UsageCourse
from kedge.cli.usage.top.live.usage_rows import UsageAmount, UsageRow
from kedge.cli.usage.top.live.usage_table import TableLook, cores, share_role, size, table
from kedge.cli.usage.top.live.view_state import Level, Place, SortOrder, ViewState

PODS = ViewState(place=Place(Level.PODS))
WEB = UsageRow(
    key="shop/web",
    namespace="shop",
    name="web-7c9d",
    status="Running",
    restarts=2,
    cpu=UsageAmount(0.25, 0.1, 0.5),
    memory=UsageAmount(67e6, 50e6),
    node="node-1",
)
NEW = UsageRow(key="shop/new", namespace="shop", name="new", status="Pending", is_well=False)


def look(state: ViewState = PODS, **more: Any) -> TableLook:
    return TableLook(state, {}, 0, UNICODE)._replace(**more)


def texts(lines: list[ScreenLine]) -> list[str]:
    return [" ".join(each.text.split()) for each in lines]


def test_a_line_has_usage_bars_and_shares() -> None:
    assert texts(table([WEB, NEW], look(), 160)) == [
        "NAMESPACE POD STATUS RESTARTS CPU▼ OF LIMIT MEM OF LIMIT CPU 1M CPU 1H NODE",
        "shop web-7c9d Running 2 0.25 ━━┿━━───── 50% 67 MB ━━━━━━━┿━━ 134%r node-1",
        "shop new Pending 0 - - - - -",
    ]


@pytest.mark.parametrize(
    ("cells", "heading"),
    [
        (112, "NAMESPACE POD STATUS CPU▼ OF LIMIT MEM OF LIMIT CPU 1M CPU 1H"),
        (100, "NAMESPACE POD STATUS CPU▼ OF LIMIT MEM OF LIMIT CPU 1M"),
        (75, "POD STATUS CPU▼ OF LIMIT MEM OF LIMIT"),
        (40, "POD STATUS CPU▼ MEM"),
        (30, "POD CPU▼ MEM"),
        (12, "POD"),
    ],
)
def test_a_narrow_terminal_has_fewer_columns(cells: int, heading: str) -> None:
    drawn = table([WEB, NEW], look(), cells)
    assert texts(drawn)[0] == heading
    assert all(width(each.text) <= cells for each in drawn)


def test_a_long_name_is_cut_before_a_column_is_left_out() -> None:
    long = WEB._replace(name="web-" + "x" * 60)
    _, first = table([long], look(), 75)
    assert "web-xxxx" in first.text
    assert "…" in first.text
    assert "MB" in first.text


def test_names_of_usual_length_are_shown_before_less_important_columns() -> None:
    usual = WEB._replace(name="web-599c6b67f5-dg8xz")
    heading, first = table([usual], look(), 130)
    assert "web-599c6b67f5-dg8xz " in first.text
    assert "RESTARTS" not in heading.text


def test_a_hostile_name_stays_in_its_cells() -> None:
    _, first = table([WEB._replace(name="a\x1b[2Jb\u202e日")], look(), 160)
    assert " ab日 " in first.text


@pytest.mark.parametrize(
    ("state", "present", "absent"),
    [
        (PODS._replace(namespace="shop"), "POD", "NAMESPACE"),
        (ViewState(place=Place(Level.PODS, node="n1")), "NAMESPACE", " NODE"),
        (ViewState(), "PODS", "RESTARTS"),
        (ViewState(place=Place(Level.CONTAINERS, pod="a/b")), "CONTAINER", "NAMESPACE"),
        (PODS._replace(sort=SortOrder("memory")), "MEM 1M", "CPU 1M"),
        (PODS._replace(sort=SortOrder("name", False)), "POD▲", "▼"),
    ],
)
def test_columns_depend_on_the_place(state: ViewState, present: str, absent: str) -> None:
    heading = table([WEB], look(state), 200)[0].text
    assert present in heading
    assert absent not in heading


def test_devices_are_shown_where_there_are_any() -> None:
    heading, first = table([WEB._replace(devices="gpu 2")], look(), 200)
    assert heading.text.rstrip().endswith("DEVICES")
    assert first.text.rstrip().endswith("gpu 2")


def test_trends_are_those_of_the_minute_and_the_hour() -> None:
    course = UsageCourse()
    for number in range(30):
        course.take(10_000 + 10 * number, TickUsage(1.0 if number < 27 else 0.0, 1.0))
    (_, first) = table([WEB], look(courses={WEB.key: course}, end=10_290), 160)
    minute, hour = [span.text for span in first.spans if set(span.text) & set("▁█")]
    assert minute == "██████▁▁▁▁▁▁"
    assert hour == " " * 11 + "█"


def test_a_terminal_without_utf_8_gets_ascii() -> None:
    drawn = table([WEB._replace(name="wéb")], look(draw=ASCII), 160)
    assert all(each.text.isascii() for each in drawn)
    assert "CPUv" in drawn[0].text
    assert "w?b" in drawn[1].text


@pytest.mark.parametrize(
    ("amount", "role"),
    [
        (UsageAmount(0.6, None, 1.0), TextRole.GOOD),
        (UsageAmount(0.7, None, 1.0), TextRole.WARNING),
        (UsageAmount(0.9, 2.0, 1.0), TextRole.BAD),
        (UsageAmount(0.9, 1.0), TextRole.GOOD),
        (UsageAmount(1.1, 1.0), TextRole.WARNING),
    ],
)
def test_usage_near_a_limit_is_alarming(amount: UsageAmount, role: TextRole) -> None:
    assert share_role(amount) is role


@pytest.mark.parametrize(
    ("row", "role"),
    [
        (WEB, TextRole.GOOD),
        (NEW, TextRole.WARNING),
        (NEW._replace(status="CrashLoopBackOff"), TextRole.BAD),
    ],
)
def test_the_status_has_a_colour(row: UsageRow, role: TextRole) -> None:
    _, first = table([row], look(), 160)
    assert [span.role for span in first.spans if span.text.strip() == row.status] == [role]


@pytest.mark.parametrize(
    ("used", "text"),
    [
        (None, "-"),
        (0.0, "0.00"),
        (0.0001, "1m"),
        (0.042, "42m"),
        (0.0996, "0.10"),
        (1.234, "1.23"),
        (12.34, "12.3"),
        (123.4, "123"),
    ],
)
def test_amounts_of_cpu(used: float | None, text: str) -> None:
    assert cores(used) == text


def test_amounts_of_memory() -> None:
    assert (size(None), size(67e6), size(0.0)) == ("-", "67 MB", "0 B")
