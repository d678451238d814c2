"""The frame of the live view: a pure function of the state, the data and the size of the
terminal."""

from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from typing import Final, NamedTuple

from kedge.cli.output.plot import Glyphs, Plot, Rule
from kedge.cli.usage.top.live.keys import HELP
from kedge.cli.usage.top.live.screen_lines import (
    ScreenLine,
    ScreenSize,
    Span,
    TextRole,
    clipped,
    line,
    with_right,
)
from kedge.cli.usage.top.live.text_cells import clean, cut, fitted, width
from kedge.cli.usage.top.live.usage_course import UsageCourse
from kedge.cli.usage.top.live.usage_rows import NO_NODE, UsageAmount, UsageRow
from kedge.cli.usage.top.live.usage_table import TableLook, cores, size, table
from kedge.cli.usage.top.live.view_state import PANES, Level, Mode, Shown, ViewState

_AROUND_TABLE: Final = 4
"""Lines beside those of the table: title, message, heading, keys."""
_AROUND_TEXT: Final = 3
_PLOT_LINES: Final = 9
"""A title, six lines of the plot, and two of its axis."""
_LEAST_ROWS: Final = 4
"""Lines of the table above plots."""
_PLOT_MARGIN: Final = 27
"""Cells beside a plot: the amounts at its left, the labels of rules at its right."""
_LEAST_PLOT: Final = 20
_COURSES: Final = {"10s": "1m", "1m": "1m", "1h": "1h", "1d": "1d"}
"""The time that plots show, by window."""
_IMPORTANT: Final = ("help", "quit")
_PANE_KEYS: Final = (
    ("Esc", "back"),
    ("PgUp PgDn", "scroll"),
    ("End", "newest"),
    ("l", "logs"),
    ("w", "why"),
    ("p", "pause"),
)


class Scene(NamedTuple):
    """The data to draw."""

    rows: Sequence[UsageRow] = ()
    courses: Mapping[str, UsageCourse] = {}
    end: int = 0
    """The newest moment that was reported, in seconds since the epoch."""
    time: str = ""
    """The same as text."""
    trouble: str = ""
    """Why the data are not up to date."""
    note: str = ""
    """A lack of the data, such as that of a permission."""
    empty: str = ""
    """Why there are no lines."""
    text: Sequence[str] = ()
    """The lines of logs or why, clean."""


def shown(state: ViewState, scene: Scene, space: ScreenSize) -> Shown:
    """Return what keys need to know about the screen."""
    plots = _PLOT_LINES if _has_plots(state, scene, space) else 0
    return Shown(
        rows=[row.key for row in scene.rows],
        page=max(1, space.height - _AROUND_TABLE - plots),
        text_lines=len(_text(state, scene)),
        text_page=max(1, space.height - _AROUND_TEXT),
    )


def frame(state: ViewState, scene: Scene, space: ScreenSize, draw: Glyphs) -> list[ScreenLine]:
    """Return the lines of the screen, at most as many as it has."""
    head = [_title(state, scene, space, draw), _message(state, scene, space, draw)]
    if state.mode in PANES:
        body = _pane(state, scene, space)
    else:
        body = [*_table(state, scene, space, draw), *_plots(state, scene, space, draw)]
    room = max(0, space.height - len(head) - 1)
    filled = [*body[:room], *([ScreenLine()] * (room - len(body)))]
    return [*head, *filled, _footer(state, space)][: space.height]


def _title(state: ViewState, scene: Scene, space: ScreenSize, draw: Glyphs) -> ScreenLine:
    arrow = " › " if draw.has_dots else " > "
    left = [Span("kedge top", TextRole.TITLE), Span(" " + arrow.join(_path(state, draw)))]
    right = [f"{state.statistic} of {state.window}", f"by {state.sort.column}"]
    if state.mode in PANES:
        right = []
    if scene.time:
        right.append(scene.time)
    spans = [Span("  ".join(right), TextRole.DIM)]
    if state.paused:
        spans = [Span("PAUSED", TextRole.WARNING), Span("  "), *spans]
    return with_right(left, spans, space.width)


def _path(state: ViewState, draw: Glyphs) -> list[str]:
    place = state.place
    where = f"namespace {state.namespace}" if state.namespace else "all namespaces"
    levels: Mapping[Level, Sequence[str]] = {
        Level.NODES: [Level.NODES],
        Level.PODS: [place.node or Level.PODS, where],
        Level.CONTAINERS: [place.node, place.pod] if place.pod else [Level.CONTAINERS, where],
    }
    parts = [str(each) for each in levels[place.level] if each]
    if state.mode is Mode.HELP:
        parts = ["help"]
    elif state.mode in PANES:
        parts = [f"{state.mode} {state.subject}"]
    return [clean(each, ascii_only=not draw.has_dots) for each in parts]


def _message(state: ViewState, scene: Scene, space: ScreenSize, draw: Glyphs) -> ScreenLine:
    """The second line: the filter while it is typed, else the most important message."""
    if state.mode is Mode.FILTER:
        cursor = "▏" if draw.has_dots else "_"
        typed = clean(state.place.filter, ascii_only=not draw.has_dots)
        return ScreenLine(clipped([Span("/", TextRole.KEY), Span(typed + cursor)], space.width))
    said = [
        (scene.trouble, TextRole.BAD),
        (state.notice, TextRole.WARNING),
        ("" if state.mode in PANES else scene.note, TextRole.WARNING),
        (_count(state, scene), TextRole.DIM),
    ]
    text, role = next((each for each in said if each[0]), ("", TextRole.DIM))
    return line(cut(clean(text, ascii_only=not draw.has_dots), space.width), role)


def _count(state: ViewState, scene: Scene) -> str:
    if state.mode in PANES:
        return f"{len(scene.text)} lines" if state.mode is Mode.LOGS else ""
    number = sum(row.key != NO_NODE for row in scene.rows)
    counted = f"{number} {state.place.level if number != 1 else state.place.level[:-1]}"
    return f'{counted} with "{state.place.filter}"' if state.place.filter else counted


# The table.


def _table(state: ViewState, scene: Scene, space: ScreenSize, draw: Glyphs) -> list[ScreenLine]:
    place = state.place
    page = shown(state, scene, space).page
    visible = scene.rows[place.top : place.top + page]
    look = TableLook(state, scene.courses, scene.end, draw)
    drawn = table(visible, look, space.width)
    if not visible:
        return [drawn[0], *(line(cut(each, space.width)) for each in _nothing(state, scene))]
    heading, *lines = drawn
    at = place.position - place.top
    return [
        heading,
        *(each._replace(is_selected=number == at) for number, each in enumerate(lines)),
    ]


def _nothing(state: ViewState, scene: Scene) -> list[str]:
    if state.place.filter:
        return [f'No line contains "{clean(state.place.filter)}": Esc clears the filter.']
    return [clean(scene.empty)] if scene.empty else []


# Plots of a container.


def _has_plots(state: ViewState, scene: Scene, space: ScreenSize) -> bool:
    return (
        state.place.level is Level.CONTAINERS
        and bool(state.place.pod)
        and bool(scene.rows)
        and space.height >= _AROUND_TABLE + _LEAST_ROWS + _PLOT_LINES
        and space.width >= _PLOT_MARGIN + _LEAST_PLOT
    )


def _plots(state: ViewState, scene: Scene, space: ScreenSize, draw: Glyphs) -> list[ScreenLine]:
    if not _has_plots(state, scene, space):
        return []
    row = scene.rows[min(state.place.position, len(scene.rows) - 1)]
    course = scene.courses.get(row.key)
    both = space.width >= 2 * (_PLOT_MARGIN + _LEAST_PLOT)
    focus = "memory" if state.sort.column.startswith("memory") else "cpu"
    resources = ("cpu", "memory") if both else (focus,)
    cells = space.width // len(resources)
    drawn = [_plot(row, course, each, state, scene.end, cells, draw) for each in resources]
    spare = shown(state, scene, space).page - len(scene.rows)
    blank = [ScreenLine()] * max(0, spare)
    joined = [
        ScreenLine(clipped(chain.from_iterable(parts), space.width))
        for parts in zip_longest(*drawn, fillvalue=(Span(" " * cells),))
    ]
    return [*blank, *joined]


def _plot(
    row: UsageRow,
    course: UsageCourse | None,
    resource: str,
    state: ViewState,
    end: int,
    cells: int,
    draw: Glyphs,
) -> list[tuple[Span, ...]]:
    length = _COURSES[state.window]
    amount: UsageAmount = getattr(row, resource)
    text = cores if resource == "cpu" else size
    points = _points(course, resource, length, end)
    known = any(each is not None for each in points)
    title = f"{resource} of {clean(row.name, ascii_only=not draw.has_dots)}, last {length}"
    plot = Plot(cells - _PLOT_MARGIN, _PLOT_LINES - 3, text, f"-{length}", "now", draw)
    lines = plot.lines(points, _rules(amount, text)) if known else ["", "not measured yet"]
    shown_lines = [Span(fitted(title, cells), TextRole.HEADING)]
    shown_lines += [Span(fitted(each, cells)) for each in lines]
    return [(each,) for each in shown_lines]


def _points(
    course: UsageCourse | None, resource: str, length: str, end: int
) -> Sequence[float | None]:
    if course is None:
        return ()
    if length == "1d":
        return course.day(resource)
    return course.hour(resource, end) if length == "1h" else course.minute(resource, end)


def _rules(amount: UsageAmount, text: object) -> list[Rule]:
    found = []
    if amount.limit:
        found.append(Rule(amount.limit, "limit"))
    if amount.request and amount.request != amount.limit:
        found.append(Rule(amount.request, "request"))
    return found


# Logs, why and help.


def _text(state: ViewState, scene: Scene) -> Sequence[str]:
    return help_lines() if state.mode is Mode.HELP else scene.text


def help_lines() -> list[str]:
    """Return the help about all keys."""
    longest = max(len(each.keys) for each in HELP)
    return [
        *(f"  {each.keys.ljust(longest)}  {each.effect}" for each in HELP),
        "",
        "Bars end at the limit and have a mark at the request. The share is that of the limit, or,",
        "with an r, of the request. Trends are those of cpu, or of memory if you sort by memory:",
        "the last minute by seconds and the last hour by tens of seconds, as the node has kept",
        "them, or since the view was opened if the node keeps none.",
    ]


def _pane(state: ViewState, scene: Scene, space: ScreenSize) -> list[ScreenLine]:
    page = max(1, space.height - _AROUND_TEXT)
    text = _text(state, scene)
    if state.pane_top is None:
        visible = [part for each in text[-page:] for part in wrapped(each, space.width)][-page:]
    else:
        top = max(0, min(state.pane_top, len(text) - page))
        visible = [part for each in text[top : top + page] for part in wrapped(each, space.width)]
    return [line(each) for each in visible[:page]]


def wrapped(text: str, cells: int) -> list[str]:
    """Return a clean text in lines of at most so many cells."""
    parts = []
    while width(text) > cells > 1:
        part = cut(text, cells)
        parts.append(part)
        text = text[len(part) :]
    return [*parts, cut(text, cells)]


# Keys.


def _footer(state: ViewState, space: ScreenSize) -> ScreenLine:
    if state.mode is Mode.FILTER:
        keys: Sequence[tuple[str, str]] = (("Enter", "keep"), ("Esc", "clear"))
    elif state.mode in PANES:
        keys = _PANE_KEYS
    else:
        keys = [(each.keys.partition(",")[0], each.label) for each in HELP if each.label]
        keys = [("1-4" if label == "window" else key, label) for key, label in keys]
    spans = chain.from_iterable(
        (Span(key, TextRole.KEY), Span(f" {label}  ", TextRole.DIM))
        for key, label in _footer_keys(keys, space.width)
    )
    return ScreenLine(clipped(spans, space.width))


def _footer_keys(keys: Sequence[tuple[str, str]], cells: int) -> list[tuple[str, str]]:
    """Return the keys for which there is room: the help and the way out before all others."""
    important = [each for each in keys if each[1] in _IMPORTANT]
    left = cells - sum(map(_footer_width, important))
    kept = []
    for each in keys:
        if each in important or _footer_width(each) <= left:
            left -= 0 if each in important else _footer_width(each)
            kept.append(each)
    return kept


def _footer_width(key: tuple[str, str]) -> int:
    return len(key[0]) + len(key[1]) + 3
