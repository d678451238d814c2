"""Pictures of terminals."""

import re

import terminal_picture
from terminal_picture import Piece, TextLook


def test_a_line_falls_into_pieces_of_one_look() -> None:
    found, look = terminal_picture.pieces("a\x1b[1;32mgood\x1b[0m \x1b[7m日x", TextLook())
    assert found == [
        Piece(0, "a", TextLook()),
        Piece(1, "good", TextLook(colour=2, bold=True)),
        Piece(5, " ", TextLook()),
        Piece(6, "日x", TextLook(reverse=True)),
    ]
    assert look == TextLook(reverse=True)


def test_the_look_goes_on_in_the_next_line() -> None:
    drawn = terminal_picture.svg("\x1b[31mred\nstill\x1b[39m plain\n")
    colours = dict(re.findall(r'fill="(#\w+)">(\w+)<', drawn))
    assert colours == {
        terminal_picture.COLOURS[1]: "still",
        terminal_picture.FOREGROUND: "plain",
    }


def test_the_same_screen_gives_the_same_picture() -> None:
    screen = "\x1b[1mNODE\x1b[0m  CPU\n\x1b[7mnode-1  <1>\x1b[0m\n"
    drawn = terminal_picture.svg(screen)
    assert drawn == terminal_picture.svg(screen)
    assert "&lt;1&gt;" in drawn
    assert drawn.count("<rect") == 2


def test_words_stay_in_their_columns() -> None:
    drawn = terminal_picture.svg("NODE      CPU")
    assert re.findall(r'<text x="(\d+)"', drawn) == ["12", "92"]
