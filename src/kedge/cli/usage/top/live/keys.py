"""The keys of the live view: their names, and the help about them."""

from typing import Final, NamedTuple

UP: Final = "up"
DOWN: Final = "down"
PAGE_UP: Final = "page up"
PAGE_DOWN: Final = "page down"
HOME: Final = "home"
END: Final = "end"
ENTER: Final = "enter"
ESCAPE: Final = "escape"
BACKSPACE: Final = "backspace"
TAB: Final = "tab"
BACK_TAB: Final = "back tab"
"""Keys without a character. All others are named by theirs."""

ALIASES: Final = {"k": UP, "j": DOWN, "g": HOME, "G": END, " ": PAGE_DOWN}
"""Characters that mean another key, except where text is typed."""


class KeyHelp(NamedTuple):
    """Keys with the same effect."""

    keys: str
    effect: str
    label: str = ""
    """The word in the footer; empty if the footer leaves the key out."""


HELP: Final = (
    KeyHelp("Up, Down, j, k", "select another line"),
    KeyHelp("PgUp, PgDn, Space", "a page up or down"),
    KeyHelp("Home, End, g, G", "the first or the last line"),
    KeyHelp("Enter", "a node's pods, a pod's containers, a container's logs", "open"),
    KeyHelp("Esc, Backspace", "back; clears the filter first", "back"),
    KeyHelp("/", "show only lines that contain all of some words; Esc clears it", "filter"),
    KeyHelp("s, >, <", "sort by the next column, or by the one before", "sort"),
    KeyHelp("r", "reverse the order"),
    KeyHelp("l", "logs of the container, or of the pod's first one", "logs"),
    KeyHelp("w", "why the pod is on its node, or on none, or slow", "why"),
    KeyHelp("1, 2, 3, 4, Tab", "usage of the last 10s, 1m, 1h, 1d", "window"),
    KeyHelp("m", "mean, max or 95th percentile of the window"),
    KeyHelp("a", "pods of all namespaces, or of one"),
    KeyHelp("p", "pause, and go on", "pause"),
    KeyHelp("?", "this help", "help"),
    KeyHelp("q", "quit; from logs, why and help: back", "quit"),
)
"""All keys, in the order of the help."""
