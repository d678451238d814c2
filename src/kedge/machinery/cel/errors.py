"""Errors of CEL expressions: at compilation with a place in the source, or at run time."""

from typing import Final

MAX_REPORTED: Final = 100


class CelError(Exception):
    """An expression that does not compile, or whose evaluation fails."""


class CelBudgetError(CelError):
    """An evaluation was stopped because it costs too much or takes too long."""


class CelSource:
    """The text of an expression, and where its lines begin."""

    __slots__ = ("_starts", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0]
        at = text.find("\n")
        while at >= 0:
            self._starts.append(at + 1)
            at = text.find("\n", at + 1)

    def place(self, offset: int) -> tuple[int, int]:
        """Return line (from 1) and column (from 0) of an offset."""
        low, high = 0, len(self._starts)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._starts[middle] <= offset else (low, middle)
        return low + 1, offset - self._starts[low]

    def line(self, number: int) -> str:
        """Return a line by its number, without the line break."""
        start = self._starts[number - 1]
        end = self._starts[number] - 1 if number < len(self._starts) else len(self.text)
        return self.text[start:end]


class CelIssues:
    """Compilation errors, printed as cel-go prints them."""

    __slots__ = ("_found", "_source")

    def __init__(self, source: CelSource) -> None:
        self._source = source
        self._found: list[tuple[int, str]] = []

    def add(self, offset: int, message: str) -> None:
        """Record an error at an offset of the source; -1 stands for no particular place."""
        if len(self._found) <= MAX_REPORTED:
            self._found.append((offset, message))

    def __bool__(self) -> bool:
        return bool(self._found)

    def __str__(self) -> str:
        ordered = sorted(self._found, key=lambda found: found[0])
        return "\n".join(self._shown(*found) for found in ordered[:MAX_REPORTED])

    def _shown(self, offset: int, message: str) -> str:
        if offset < 0:
            return f"ERROR: <input>:-1:0: {message}"
        line, column = self._source.place(offset)
        text = self._source.line(line).replace("\t", " ")
        # The mark stands under the character, and wide characters take a wide dot.
        dots = "".join("．" if ord(c) > 0x2FF else "." for c in text[:column])
        mark = "＾" if column < len(text) and ord(text[column]) > 0x2FF else "^"
        return f"ERROR: <input>:{line}:{column + 1}: {message}\n | {text}\n | {dots}{mark}"
