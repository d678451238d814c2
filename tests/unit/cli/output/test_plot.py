"""Drawings in lines of text."""

from hypothesis import given
from hypothesis import strategies as st

from kedge.cli.output.plot import (
    ASCII,
    UNICODE,
    BarCells,
    Glyphs,
    Plot,
    Rule,
    bar,
    bar_cells,
    glyphs,
    resampled,
    sparkline,
)

POINTS = st.lists(st.none() | st.floats(0, 1e12), max_size=400)


def test_a_sparkline_reaches_from_nothing_to_the_greatest_amount() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7, 8], 9) == "▁▂▃▄▅▆▇██"
    assert sparkline([0, 4, 8], 3, draw=ASCII) == "_=#"
    assert sparkline([1, 1], 2, top=8) == "▂▂"


def test_a_point_without_data_is_a_gap() -> None:
    assert sparkline([1, None, 1], 3) == "█ █"


def test_a_short_course_ends_at_the_right() -> None:
    assert sparkline([1], 4) == "   █"
    assert sparkline([], 4) == "    "


def test_a_long_course_keeps_its_peaks() -> None:
    assert resampled([0, 9, 0, 0, 1, 0], 3) == [9, 0, 1]
    assert resampled([None, None, 1, None], 2) == [None, 1]


def test_a_bar_ends_at_the_limit_and_marks_the_request() -> None:
    assert bar(5, 2.5, 10, 8) == "━━┿━────"
    assert bar(1, 5, 10, 8) == "━───┼───"
    assert bar(5, 2.5, 10, 8, draw=ASCII) == "==|=----"


def test_any_usage_shows_and_none_fills_more_than_the_bar() -> None:
    assert bar(0.001, None, 10, 4) == "━───"
    assert bar(0, None, 10, 4) == "────"
    assert bar(99, 1, 10, 4) == "┿━━━"


def test_a_bar_without_a_limit_ends_at_the_request_or_the_amount() -> None:
    assert bar_cells(1, 4, None, 8) == BarCells(2, 7)
    assert bar_cells(8, 4, None, 8) == BarCells(8, 4)
    assert bar_cells(8, None, None, 8) == BarCells(8, None)


def test_a_plot_has_axes_and_labelled_rules() -> None:
    plot = Plot(8, 4, lambda x: f"{x:.0f}m", "10:00", "now", draw=ASCII)
    assert plot.lines([0, 0, 30, 30, 0, 0, 0, 0], [Rule(60, "limit"), Rule(20, "request")]) == [
        "60m |-------- limit",
        "    |  ***",
        "    |--*-*--- request",
        " 0m |*** ****",
        "    +--------",
        "     10:00 now",
    ]


def test_a_plot_of_dots_joins_steep_courses() -> None:
    plot = Plot(2, 1, lambda x: f"{x:g}")
    assert plot.lines([0, 1, None, 0]) == ["0 ┤⣸⢀", "  └──"]


def test_rules_of_one_line_share_it() -> None:
    lines = Plot(4, 2, str, draw=ASCII).lines([1, 1], [Rule(100, "limit"), Rule(99, "proposed")])
    assert lines[0] == "100 |---- limit, proposed"


@given(POINTS, st.integers(1, 90), st.integers(1, 9), st.sampled_from([UNICODE, ASCII]))
def test_drawings_have_the_size_asked_for(
    values: list[float | None], width: int, height: int, draw: Glyphs
) -> None:
    assert len(sparkline(values, width, draw=draw)) == width
    lines = Plot(width, height, lambda _: "", draw=draw).lines(values, [Rule(5, "")])
    assert len(lines) == height + 1
    assert all(len(line) <= width + 3 for line in lines)
    if draw is ASCII:
        assert "".join(lines).isascii()


def test_only_a_terminal_with_utf_8_gets_more_than_ascii() -> None:
    assert glyphs("utf-8", {}) is UNICODE
    assert glyphs("ISO-8859-1", {}) is ASCII
    assert glyphs(None, {}) is ASCII
    assert glyphs("utf-8", {"TERM": "linux"}) is ASCII
