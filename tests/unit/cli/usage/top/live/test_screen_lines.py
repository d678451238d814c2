"""Pieces of text on a line."""

from kedge.cli.usage.top.live.screen_lines import ScreenLine, Span, TextRole, clipped, with_right


def test_pieces_are_clipped_at_the_end_of_the_line() -> None:
    spans = [Span("abc", TextRole.KEY), Span("def"), Span("ghi")]
    assert clipped(spans, 4) == (Span("abc", TextRole.KEY), Span("d"))
    assert clipped(spans, 0) == ()
    assert clipped([Span("日本"), Span("x")], 3) == (Span("日"),)


def test_the_right_end_gives_way_to_the_left() -> None:
    left, right = [Span("left")], [Span("right", TextRole.DIM)]
    assert with_right(left, right, 12).text == "left   right"
    assert with_right(left, right, 9) == ScreenLine((Span("left"),))
    assert with_right(left, right, 2).text == "le"
