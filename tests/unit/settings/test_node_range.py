"""How many nodes to run."""

import argparse

import pytest

from kedge.settings.node_range import NodeRange, parse_node_range


@pytest.mark.parametrize(
    ("text", "found"),
    [("0", (0, 0)), ("3", (3, 3)), ("1..5", (1, 5)), ("2..2", (2, 2)), ("1..100", (1, 100))],
)
def test_a_number_or_a_range_is_read_and_written(text: str, found: tuple[int, int]) -> None:
    parsed = parse_node_range(text)
    assert parsed == NodeRange(*found)
    assert parse_node_range(str(parsed)) == parsed


@pytest.mark.parametrize("text", ["", "-1", "1..", "..5", "1...5", "a..b", "1,5", "²"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="neither a number"):
        parse_node_range(text)


@pytest.mark.parametrize("text", ["0..3", "5..1", "1..101"])
def test_a_range_begins_at_one_and_rises(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a range of nodes"):
        parse_node_range(text)
