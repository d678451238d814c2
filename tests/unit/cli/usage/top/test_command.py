"""`kedge top`: when it opens the live view, and what it does where it cannot."""

import sys
from typing import Any

import pytest

from kedge.cli.objects.connection import ApiSession
from kedge.cli.usage.lines import TopOptions
from kedge.cli.usage.top import command
from kedge.cli.usage.top.live import live_view
from kedge.cli.usage.top.live.screen import UnusableTerminal

MAIN = {"containers": [{"name": "main", "image": "host"}]}


class Tty:
    def __init__(self, answer: bool) -> None:
        self._answer = answer

    def isatty(self) -> bool:
        return self._answer


@pytest.mark.parametrize(
    ("keyboard", "screen", "term", "has_terminal"),
    [
        (True, True, "xterm", True),
        (True, False, "xterm", False),
        (False, True, "xterm", False),
        (True, True, "dumb", False),
        (True, True, None, False),
    ],
)
def test_a_live_view_needs_a_screen_and_a_keyboard(
    monkeypatch: pytest.MonkeyPatch,
    keyboard: bool,
    screen: bool,
    term: str | None,
    has_terminal: bool,
) -> None:
    monkeypatch.setattr(sys, "stdin", Tty(keyboard))
    monkeypatch.setattr(sys, "stdout", Tty(screen))
    monkeypatch.delenv("TERM", raising=False)
    if term is not None:
        monkeypatch.setenv("TERM", term)
    assert command._has_terminal() is has_terminal


async def test_an_unknown_terminal_gets_a_plain_table(
    there: ApiSession,
    usage: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def show_live(*_: object) -> int:
        raise UnusableTerminal("unknown")

    monkeypatch.setattr(live_view, "show_live", show_live)
    usage.report(0.25)
    assert await command._open_view(there, TopOptions()) == 0
    assert capsys.readouterr().out.startswith("NODE")


async def test_a_python_without_curses_gets_a_plain_table(
    there: ApiSession,
    usage: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in (live_view.__name__, "kedge.cli.usage.top.live.screen", "curses"):
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "_curses", None)
    usage.report(0.25)
    assert await command._open_view(there, TopOptions()) == 0
    assert capsys.readouterr().out.startswith("NODE")
