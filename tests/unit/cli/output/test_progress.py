"""Progress: one live line on a terminal, lines elsewhere, nothing if the work is short."""

import io

import pytest

from kedge.cli.output.progress import ProgressLine
from kedge.testing.clock import FakeClock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def test_a_terminal_has_one_line_after_a_second() -> None:
    clock, out = FakeClock(), Terminal()
    line = ProgressLine(out, clock)
    line.show("early")
    line.line("not here")
    assert out.getvalue() == ""
    await clock.advance(1.0)
    line.show("longer text")
    line.show("too soon")
    await clock.advance(0.1)
    line.show("short")
    line.end()
    assert out.getvalue() == "\rlonger text\rshort      \r     \r"


def test_a_text_of_several_lines_is_one_line() -> None:
    out = Terminal()
    ProgressLine(out, FakeClock()).announce("Waiting for x: one\n\ttwo")
    assert out.getvalue() == "\rWaiting for x: one two"


def test_a_terminal_shows_an_announcement_at_once_and_no_more_than_its_width(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "11")
    out, pipe = Terminal(), io.StringIO()
    for stream in (out, pipe):
        line = ProgressLine(stream, FakeClock())
        line.announce("Stopping the cluster")
        line.end()
    assert out.getvalue() == "\rStopping t\r          \r"
    assert pipe.getvalue() == ""


def test_without_a_terminal_there_are_lines_unless_quiet() -> None:
    out = io.StringIO()
    ProgressLine(out, FakeClock()).line("layer 1")
    ProgressLine(out, FakeClock()).show("live")
    ProgressLine(out, FakeClock(), is_quiet=True).line("layer 2")
    assert out.getvalue() == "layer 1\n"
