"""ViewState: what the live view shows, and the state after each key."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from kedge.cli.usage.top.live import keys
from kedge.metrics.windows import MAIN, STATISTICS, WINDOWS

_MOST_FILTER: Final = 100
"""Characters of a filter: a file that is pasted by mistake is cut."""


class Level(StrEnum):
    """The kind of lines."""

    NODES = "nodes"
    PODS = "pods"
    CONTAINERS = "containers"


class Mode(StrEnum):
    """The part of the view that gets the keys."""

    TABLE = "table"
    FILTER = "filter"
    LOGS = "logs"
    WHY = "why"
    HELP = "help"
    ENDED = "ended"


PANES: Final = (Mode.LOGS, Mode.WHY, Mode.HELP)
"""Modes that show text instead of the table."""


class SortOrder(NamedTuple):
    """The column by which lines are sorted."""

    column: str = "cpu"
    descending: bool = True


SORTS: Final[Mapping[Level, Sequence[str]]] = {
    Level.NODES: ("name", "status", "pods", "cpu", "cpu%", "memory", "memory%"),
    Level.PODS: ("name", "status", "restarts", "cpu", "cpu%", "memory", "memory%", "node"),
    Level.CONTAINERS: ("name", "status", "restarts", "cpu", "cpu%", "memory", "memory%"),
}
"""The columns to sort by, from left to right."""
_ASCENDING: Final = ("name", "status", "node")
"""Columns of text: their natural order begins with A."""


class Place(NamedTuple):
    """A table, and where in it the view was: what the way back leads to."""

    level: Level
    node: str = ""
    """Only the pods of this node."""
    pod: str = ""
    """Only the containers of this pod, as namespace/name."""
    filter: str = ""
    selected: str = ""
    """The key of the selected line; empty for the first one, whichever that is."""
    position: int = 0
    top: int = 0
    """The first line on the screen."""


class ViewState(NamedTuple):
    """The state of the view. Data are no part of it."""

    place: Place = Place(Level.NODES)
    back: tuple[Place, ...] = ()
    namespace: str = ""
    """The namespace of the pods; empty for all."""
    own_namespace: str = "default"
    """The namespace that the kubeconfig or a flag names."""
    sort: SortOrder = SortOrder()
    window: str = MAIN
    statistic: str = "mean"
    paused: bool = False
    mode: Mode = Mode.TABLE
    subject: str = ""
    """The pod (namespace/name) or container (namespace/name/container) of logs and why."""
    pane_top: int | None = None
    """The first line of the text; None while it follows the end of logs."""
    notice: str = ""
    """The answer to the last key, if it had no other effect."""

    @property
    def sorts(self) -> Sequence[str]:
        return SORTS[self.place.level]


class Shown(NamedTuple):
    """The lines on the screen, as far as keys depend on them."""

    rows: Sequence[str] = ()
    """The keys of all lines of the table, in their order."""
    page: int = 1
    """Lines of the table that the screen has room for."""
    text_lines: int = 0
    text_page: int = 1
    """The same of logs, why and help."""


def pressed(state: ViewState, key: str, shown: Shown) -> ViewState:
    """Return the state after a key."""
    if state.mode is Mode.ENDED:
        return state
    state = state._replace(notice="")
    if state.mode is Mode.FILTER:
        return _typed(state, key, shown)
    key = keys.ALIASES.get(key, key)
    if state.mode in PANES:
        return _in_pane(state, key, shown)
    if key in _MOVES:
        return _moved(state, key, shown)
    act = _ACTIONS.get(key)
    return act(state, shown) if act else state


def settled(state: ViewState, shown: Shown) -> ViewState:
    """Return the state for lines that have changed: the selection stays with its line, or else at
    its place, and is on the screen."""
    place, count = state.place, len(shown.rows)
    if place.selected in shown.rows:
        index = shown.rows.index(place.selected)
    else:
        index = max(0, min(place.position, count - 1))
    top = max(0, min(place.top, count - shown.page))
    top = max(index - shown.page + 1, min(top, index))
    selected = place.selected and (shown.rows[index] if shown.rows else place.selected)
    return state._replace(place=place._replace(selected=selected, position=index, top=top))


def permitted(state: ViewState, *, nodes: bool, all_pods: bool) -> ViewState:
    """Return the state for a user who lacks the right to read nodes, or pods of all namespaces."""
    if not all_pods and not state.namespace:
        state = state._replace(namespace=state.own_namespace)
    if not nodes and state.place.level is Level.NODES:
        state = state._replace(place=Place(Level.PODS), back=())
    return state


# Moving.

_MOVES: Final[Mapping[str, Callable[[int, Shown], int]]] = {
    keys.UP: lambda index, shown: index - 1,
    keys.DOWN: lambda index, shown: index + 1,
    keys.PAGE_UP: lambda index, shown: index - shown.page,
    keys.PAGE_DOWN: lambda index, shown: index + shown.page,
    keys.HOME: lambda index, shown: 0,
    keys.END: lambda index, shown: len(shown.rows) - 1,
}


def _moved(state: ViewState, key: str, shown: Shown) -> ViewState:
    if not shown.rows:
        return state
    index = max(0, min(_MOVES[key](state.place.position, shown), len(shown.rows) - 1))
    return _selected(state, index, shown)


def _selected(state: ViewState, index: int, shown: Shown) -> ViewState:
    place = state.place._replace(selected=shown.rows[index], position=index)
    return settled(state._replace(place=place), shown)


def _current(state: ViewState, shown: Shown) -> str:
    """The key of the selected line; empty if there is no line."""
    return shown.rows[state.place.position] if state.place.position < len(shown.rows) else ""


# Places.


def _open(state: ViewState, shown: Shown) -> ViewState:
    current = _current(state, shown)
    if not current:
        return state
    place = state.place._replace(selected=current)
    if place.level is Level.NODES:
        return _at(state, Place(Level.PODS, node=current), place)
    if place.level is Level.PODS:
        return _at(state, Place(Level.CONTAINERS, node=place.node, pod=current), place)
    return _show_logs(state, shown)


def _at(state: ViewState, place: Place, before: Place) -> ViewState:
    state = state._replace(place=place, back=(*state.back, before))
    return _with_sort(state, state.sort)


def _close(state: ViewState, shown: Shown) -> ViewState:
    if state.place.filter:
        return state._replace(place=state.place._replace(filter=""))
    if state.back:
        return _with_sort(state._replace(place=state.back[-1], back=state.back[:-1]), state.sort)
    if state.place.level is Level.NODES:
        return state._replace(notice="These are all nodes: q quits")
    # The view began below: a container is part of a pod, and a pod of its node.
    above = Level.PODS if state.place.level is Level.CONTAINERS else Level.NODES
    selected = state.place.node if above is Level.NODES else ""
    return _with_sort(state._replace(place=Place(above, selected=selected)), state.sort)


def _all_namespaces(state: ViewState, shown: Shown) -> ViewState:
    # A paused view has no data of other namespaces.
    namespace = "" if state.namespace else state.own_namespace
    return state._replace(namespace=namespace, paused=False)


# Sorting.


def _with_sort(state: ViewState, sort: SortOrder) -> ViewState:
    known = sort if sort.column in state.sorts else SortOrder()
    return state._replace(sort=known)


def _sorted_by(step: int) -> Callable[[ViewState, Shown], ViewState]:
    def act(state: ViewState, shown: Shown) -> ViewState:
        position = state.sorts.index(state.sort.column) + step
        column = state.sorts[position % len(state.sorts)]
        return state._replace(sort=SortOrder(column, column not in _ASCENDING))

    return act


def _reverse(state: ViewState, shown: Shown) -> ViewState:
    sort = state.sort._replace(descending=not state.sort.descending)
    return state._replace(sort=sort)


# Filter.


def _start_filter(state: ViewState, shown: Shown) -> ViewState:
    return state._replace(mode=Mode.FILTER)


def _typed(state: ViewState, key: str, shown: Shown) -> ViewState:
    text = state.place.filter
    if key == keys.ENTER:
        return state._replace(mode=Mode.TABLE)
    if key == keys.ESCAPE or (key == keys.BACKSPACE and not text):
        return _filtered(state._replace(mode=Mode.TABLE), "")
    if key == keys.BACKSPACE:
        return _filtered(state, text[:-1])
    if key in _MOVES:
        return _moved(state, key, shown)
    if len(key) == 1 and key.isprintable():
        return _filtered(state, (text + key)[:_MOST_FILTER])
    return state


def _filtered(state: ViewState, text: str) -> ViewState:
    return state._replace(place=state.place._replace(filter=text))


# Logs, why and help.


def _show_logs(state: ViewState, shown: Shown) -> ViewState:
    return _in_mode(state, Mode.LOGS, shown)


def _show_why(state: ViewState, shown: Shown) -> ViewState:
    return _in_mode(state, Mode.WHY, shown)


def _in_mode(state: ViewState, mode: Mode, shown: Shown) -> ViewState:
    if state.place.level is Level.NODES:
        return state._replace(notice=f"{mode} is about a pod: press Enter for the node's pods")
    current = _current(state, shown)
    if not current:
        return state._replace(notice=f"{mode} is about a pod, and there is none in this list")
    top = None if mode is Mode.LOGS else 0
    return state._replace(mode=mode, subject=current, pane_top=top)


def _show_help(state: ViewState, shown: Shown) -> ViewState:
    return state._replace(mode=Mode.HELP, pane_top=0)


_SCROLLS: Final[Mapping[str, Callable[[int, Shown], int]]] = {
    keys.UP: lambda top, shown: top - 1,
    keys.DOWN: lambda top, shown: top + 1,
    keys.PAGE_UP: lambda top, shown: top - shown.text_page,
    keys.PAGE_DOWN: lambda top, shown: top + shown.text_page,
    keys.HOME: lambda top, shown: 0,
    keys.END: lambda top, shown: shown.text_lines,
}


def _in_pane(state: ViewState, key: str, shown: Shown) -> ViewState:
    if key in (keys.ESCAPE, keys.BACKSPACE, "q") or (key == "?" and state.mode is Mode.HELP):
        return state._replace(mode=Mode.TABLE, subject="", pane_top=None)
    if key in _SCROLLS:
        return _scrolled(state, key, shown)
    if key == "p":
        return _pause(state, shown)
    others = {"l": Mode.LOGS, "w": Mode.WHY}
    if key in others and state.mode is not Mode.HELP:
        top = None if key == "l" else 0
        return state._replace(mode=others[key], pane_top=top)
    return state


def _scrolled(state: ViewState, key: str, shown: Shown) -> ViewState:
    last = max(0, shown.text_lines - shown.text_page)
    top = last if state.pane_top is None else min(state.pane_top, last)
    top = max(0, min(_SCROLLS[key](top, shown), last))
    follows = state.mode is Mode.LOGS and top == last
    return state._replace(pane_top=None if follows else top)


# Everything else.


def _with_window(window: str) -> Callable[[ViewState, Shown], ViewState]:
    return lambda state, shown: state._replace(window=window)


def _next_window(step: int) -> Callable[[ViewState, Shown], ViewState]:
    names = [*WINDOWS]

    def act(state: ViewState, shown: Shown) -> ViewState:
        return state._replace(window=names[(names.index(state.window) + step) % len(names)])

    return act


def _next_statistic(state: ViewState, shown: Shown) -> ViewState:
    position = STATISTICS.index(state.statistic) + 1
    return state._replace(statistic=STATISTICS[position % len(STATISTICS)])


def _pause(state: ViewState, shown: Shown) -> ViewState:
    return state._replace(paused=not state.paused)


def _end(state: ViewState, shown: Shown) -> ViewState:
    return state._replace(mode=Mode.ENDED)


_ACTIONS: Final[Mapping[str, Callable[[ViewState, Shown], ViewState]]] = {
    keys.ENTER: _open,
    keys.ESCAPE: _close,
    keys.BACKSPACE: _close,
    "s": _sorted_by(1),
    ">": _sorted_by(1),
    "<": _sorted_by(-1),
    "r": _reverse,
    "/": _start_filter,
    "l": _show_logs,
    "w": _show_why,
    **{str(number): _with_window(window) for number, window in enumerate(WINDOWS, 1)},
    keys.TAB: _next_window(1),
    keys.BACK_TAB: _next_window(-1),
    "m": _next_statistic,
    "a": _all_namespaces,
    "p": _pause,
    "?": _show_help,
    "q": _end,
}
