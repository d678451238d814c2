"""Text in columns."""

from hypothesis import given
from hypothesis import strategies as st

from kedge.cli.output.tabstops import DESCRIPTION, TABBED, TABLE, TabLayout, align


def test_cells_of_one_column_are_as_wide_as_the_widest_and_the_padding() -> None:
    assert align(["a\tb", "long\tc"], DESCRIPTION) == ["a     b", "long  c"]


def test_no_column_is_narrower_than_the_layout_says() -> None:
    assert align(["a\tb"], TABLE) == ["a     b"]


def test_a_line_without_a_tab_begins_new_columns() -> None:
    lines = ["Name:\tx", "Events:", "  Type\tReason", "  Normal\tPulled"]
    assert align(lines, DESCRIPTION) == [
        "Name:  x",
        "Events:",
        "  Type    Reason",
        "  Normal  Pulled",
    ]


def test_a_column_to_the_right_can_end_before_the_one_to_its_left() -> None:
    lines = ["a\tb\tc", "a\tb", "a\tlonger\tc"]
    assert align(lines, DESCRIPTION) == ["a  b  c", "a  b", "a  longer  c"]


def test_gaps_of_tabs_reach_the_next_common_stop() -> None:
    lines = ["Type\tResource\tMin", "Container\tcpu\t250m"]
    assert align(lines, TABBED) == ["Type\t\tResource\tMin", "Container\tcpu\t\t250m"]


_cells = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=20)


@given(rows=st.lists(st.tuples(_cells, _cells, _cells), min_size=1))
def test_columns_are_straight_whether_of_tabs_or_of_blanks(
    rows: list[tuple[str, str, str]],
) -> None:
    lines = ["\t".join(row) for row in rows]
    tabbed = [line.expandtabs(8) for line in align(lines, TABBED)]
    for aligned in (tabbed, align(lines, TabLayout(padding=1))):
        starts = {len(line) - len(row[-1]) for row, line in zip(rows, aligned, strict=True)}
        assert len(starts) == 1
        assert all(line.endswith(row[-1]) for row, line in zip(rows, aligned, strict=True))
