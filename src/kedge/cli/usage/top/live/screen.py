"""The terminal: the only module that knows curses. It is loaded by the live view alone."""

import curses
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol

from kedge.cli.output.colour import shows_colours
from kedge.cli.usage.top.live import keys
from kedge.cli.usage.top.live.screen_lines import ScreenLine, ScreenSize, TextRole

_ESCAPE_MILLISECONDS: Final = 25
"""How long a lone escape character waits for the rest of a sequence."""
_CODES: Final = {
    curses.KEY_UP: keys.UP,
    curses.KEY_DOWN: keys.DOWN,
    curses.KEY_PPAGE: keys.PAGE_UP,
    curses.KEY_NPAGE: keys.PAGE_DOWN,
    curses.KEY_HOME: keys.HOME,
    curses.KEY_END: keys.END,
    curses.KEY_ENTER: keys.ENTER,
    curses.KEY_RIGHT: keys.ENTER,
    curses.KEY_LEFT: keys.ESCAPE,
    curses.KEY_BACKSPACE: keys.BACKSPACE,
    curses.KEY_BTAB: keys.BACK_TAB,
}
_CHARACTERS: Final = {
    "\n": keys.ENTER,
    "\r": keys.ENTER,
    "\x1b": keys.ESCAPE,
    "\x08": keys.BACKSPACE,
    "\x7f": keys.BACKSPACE,
    "\t": keys.TAB,
}
_REDRAW: Final = "\x0c"
"""Ctrl-L, after another program has written to the terminal."""
_COLOURS: Final = {
    TextRole.GOOD: curses.COLOR_GREEN,
    TextRole.WARNING: curses.COLOR_YELLOW,
    TextRole.BAD: curses.COLOR_RED,
    TextRole.TITLE: curses.COLOR_CYAN,
    TextRole.KEY: curses.COLOR_CYAN,
    TextRole.SORTED: curses.COLOR_CYAN,
}
_ATTRIBUTES: Final = {
    TextRole.DIM: curses.A_DIM,
    TextRole.TITLE: curses.A_BOLD,
    TextRole.HEADING: curses.A_BOLD,
    TextRole.SORTED: curses.A_BOLD | curses.A_UNDERLINE,
    TextRole.BAD: curses.A_BOLD,
    TextRole.KEY: curses.A_BOLD,
}


class UnusableTerminal(Exception):
    """The terminal cannot be addressed: its type is not known."""


class LiveScreen(Protocol):
    """A screen with a keyboard."""

    def size(self) -> ScreenSize: ...

    def draw(self, lines: Sequence[ScreenLine]) -> None:
        """Show these lines and nothing else."""
        ...

    def pressed(self) -> Iterator[str]:
        """Yield the keys that were pressed since the last call."""
        ...


class CursesScreen:
    """The terminal of the process, from entering until leaving, which restores it."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._environment = environment
        self._attributes: dict[TextRole, int] = {}

    def __enter__(self) -> "CursesScreen":
        try:
            self._window = curses.initscr()
        except curses.error as error:
            raise UnusableTerminal(str(error)) from error
        try:
            self._prepare()
        except BaseException:
            curses.endwin()
            raise
        return self

    def _prepare(self) -> None:
        curses.noecho()
        curses.cbreak()
        curses.set_escdelay(_ESCAPE_MILLISECONDS)
        self._window.keypad(True)
        self._window.nodelay(True)
        with suppress(curses.error):
            curses.curs_set(0)
        self._attributes = {role: _ATTRIBUTES.get(role, 0) for role in TextRole}
        if not shows_colours(sys.stdout, self._environment) or not _has_colours():
            return
        for number, (role, colour) in enumerate(_COLOURS.items(), 1):
            curses.init_pair(number, colour, -1)
            self._attributes[role] |= curses.color_pair(number)

    def __exit__(self, *_: object) -> None:
        self._window.keypad(False)
        curses.echo()
        curses.nocbreak()
        curses.endwin()

    def size(self) -> ScreenSize:
        return ScreenSize(*self._window.getmaxyx())

    def draw(self, lines: Sequence[ScreenLine]) -> None:
        self._window.erase()
        for number, each in enumerate(lines[: self.size().height]):
            self._draw_line(number, each)
        self._window.refresh()

    def _draw_line(self, number: int, content: ScreenLine) -> None:
        reverse = curses.A_REVERSE if content.is_selected else 0
        # The last cell of the screen cannot be written without scrolling: curses raises after it.
        with suppress(curses.error):
            self._window.move(number, 0)
            for span in content.spans:
                # Dim or coloured text on a reversed line is hard to read.
                self._window.addstr(span.text, reverse or self._attributes[span.role])
            if reverse:
                self._window.chgat(number, 0, -1, reverse)

    def pressed(self) -> Iterator[str]:
        while True:
            try:
                key = self._window.get_wch()
            except curses.error:
                return
            if key == _REDRAW:
                self._window.clear()
                yield ""
            elif isinstance(key, int):
                yield _CODES.get(key, "")
            else:
                yield _CHARACTERS.get(key, key if key.isprintable() else "")

    def resize(self) -> None:
        """Take over the size of the terminal."""
        size = os.get_terminal_size()
        curses.resizeterm(size.lines, size.columns)
        self._window.clear()

    def suspend(self) -> None:
        """Give the terminal back and stop, as Ctrl-Z does; take it again when continued."""
        curses.endwin()
        before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, before)
        self._window.clear()
        self.resize()
        self._window.refresh()


def _has_colours() -> bool:
    try:
        curses.start_color()
        curses.use_default_colors()
    except curses.error:
        return False
    return bool(curses.has_colors())
