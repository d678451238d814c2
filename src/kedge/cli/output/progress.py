"""The progress of work that takes longer than a second: a live line on a terminal, else lines."""

import shutil
from typing import Final, TextIO

from kedge.machinery.clock import Clock

_DELAY_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 0.1


class ProgressLine:
    """Writes progress to a stream. On a terminal the newest replaces the one before."""

    def __init__(self, stream: TextIO, clock: Clock, *, is_quiet: bool = False) -> None:
        self._stream = stream
        self._clock = clock
        self._is_quiet = is_quiet
        self._is_terminal = stream.isatty()
        self._next = clock.monotonic() + _DELAY_SECONDS
        self._width = 0

    def show(self, text: str) -> None:
        """Replace the live line, at most ten times a second; nothing without a terminal."""
        if self._is_quiet or not self._is_terminal or self._clock.monotonic() < self._next:
            return
        self._next = self._clock.monotonic() + _PAUSE_SECONDS
        self._write(text)

    def announce(self, text: str) -> None:
        """Show a live line at once, for work that may take long."""
        if not self._is_quiet and self._is_terminal:
            self._write(text)

    def line(self, text: str) -> None:
        """Print a line that stays, if there is no terminal."""
        if not self._is_quiet and not self._is_terminal:
            print(text, file=self._stream, flush=True)

    def end(self) -> None:
        """Remove the live line."""
        if self._width:
            self._write("")

    def _write(self, text: str) -> None:
        # Of a text that wraps or has several lines, the first part would stay.
        text = " ".join(text.split())[: shutil.get_terminal_size().columns - 1]
        # Blanks cover the rest of the text before.
        self._stream.write(f"\r{text.ljust(self._width)}" + ("" if text else "\r"))
        self._stream.flush()
        self._width = len(text)
