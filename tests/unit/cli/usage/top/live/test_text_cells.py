"""Text of others in the cells of a terminal."""

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.cli.usage.top.live.text_cells import clean, cut, fitted, width


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text", "plain text"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[1;1Hgone", "gone"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;cm0gLXJmIC8=", ""),
        ("\x1bPq#0\x1b\\picture", "picture"),
        ("\x9b31mred", "red"),
        ("\x1b(0lines", "lines"),
        ("\x1bc", ""),
        ("a\rb\x08c\x00d\x7fe\x85f", "abcde?f"),
        ("one\ttwo", "one    two"),
        ("日本", "日本"),
        ("invoice\u202excod.exe", "invoicexcod.exe"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("e\u0301", "é"),
        ("\ue000\ufffe", "??"),
    ],
)
def test_text_cannot_command_the_terminal(text: str, shown: str) -> None:
    assert clean(text) == shown


def test_strings_without_an_end_take_no_longer_than_their_length() -> None:
    began = process_time()
    assert clean("\x9d" * 50_000 + "\x1b") == ""
    # A search that began anew at each of them took a minute.
    assert process_time() - began < 1


def test_a_terminal_without_utf_8_gets_ascii() -> None:
    assert clean("pod-é-日", ascii_only=True) == "pod-?-?"


@given(st.text())
def test_clean_text_is_printable_and_stays_as_it_is(text: str) -> None:
    shown = clean(text)
    assert shown.isprintable()
    assert clean(shown) == shown
    assert clean(text, ascii_only=True).isascii()


@pytest.mark.parametrize(
    ("text", "cells", "shown"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdef", 5, "abcd…"),
        ("日本語", 6, "日本語"),
        ("日本語", 5, "日本…"),
        ("日本語", 4, "日… "),
        ("ab", 4, "ab  "),
        ("ab", 0, ""),
    ],
)
def test_text_is_cut_by_cells(text: str, cells: int, shown: str) -> None:
    assert fitted(text, cells, "…") == shown


def test_numbers_are_at_the_right() -> None:
    assert fitted("12", 4, right=True) == "  12"


@given(st.text(), st.integers(0, 20))
def test_a_fitted_text_has_exactly_its_width(text: str, cells: int) -> None:
    assert width(fitted(clean(text), cells, "…")) == cells
    assert width(cut(clean(text), cells)) <= cells
