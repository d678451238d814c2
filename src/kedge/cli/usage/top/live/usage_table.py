"""The table of the live view: columns, as many as there is room for, and the cells of each line."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from kedge.cli.output.plot import Glyphs, bar, sparkline
from kedge.cli.usage.detail_columns import scaled
from kedge.cli.usage.top.live.screen_lines import ScreenLine, Span, TextRole, clipped
from kedge.cli.usage.top.live.text_cells import clean, fitted, width
from kedge.cli.usage.top.live.usage_course import UsageCourse
from kedge.cli.usage.top.live.usage_rows import UsageAmount, UsageRow
from kedge.cli.usage.top.live.view_state import Level, ViewState

_GAP: Final = "  "
_BAR: Final = 10
_TREND: Final = 12
_SHARE: Final = 5
_LEAST_NAME: Final = 12
_WHOLE_NAME: Final = 40
_RANK_OF_NAME: Final = 3
"""Columns of a higher rank get room only if names of usual length are shown whole."""
_MOST_TEXT: Final = 22
"""Cells of columns of text other than the name."""
BAD_SHARE: Final = 0.9
WARNING_SHARE: Final = 0.7


class TableLook(NamedTuple):
    """The state and the data behind the lines of a table."""

    state: ViewState
    courses: Mapping[str, UsageCourse]
    end: int
    """The newest moment that was reported, in seconds since the epoch."""
    draw: Glyphs

    @property
    def trend(self) -> str:
        """The resource of the trends: the one by which the table is sorted."""
        return "memory" if self.state.sort.column.startswith("memory") else "cpu"

    @property
    def ellipsis(self) -> str:
        return "…" if self.draw.has_dots else "~"

    @property
    def ascii_only(self) -> bool:
        return not self.draw.has_dots


Cell = Callable[[UsageRow, TableLook], Sequence[Span]]


class UsageColumn(NamedTuple):
    """One column."""

    sort: str
    """Its name when the table is sorted by it; else a name of its own."""
    heading: str
    cell: Cell
    rank: int
    """Columns of low rank get room first; those of rank 0 stay in any case."""
    cells: int = 0
    """The width; 0 for the longest text on the screen."""
    right: bool = False


def table(rows: Sequence[UsageRow], look: TableLook, cells: int) -> list[ScreenLine]:
    """Return the heading and the lines. Only lines that are on the screen are given."""
    columns = _columns(rows, look)
    drawn = {column.sort: [column.cell(row, look) for row in rows] for column in columns}
    widths = {column.sort: _width(column, drawn[column.sort], look) for column in columns}
    shown = _fitting(columns, widths, cells)
    spare = cells - sum(widths[each.sort] for each in shown) - len(_GAP) * (len(shown) - 1)
    widths["name"] = max(_LEAST_NAME, min(widths["name"], widths["name"] + spare))
    heading = _joined([_heading(each, widths[each.sort], look) for each in shown], cells)
    lines = [
        _joined([_padded(drawn[c.sort][index], widths[c.sort], c, look) for c in shown], cells)
        for index in range(len(rows))
    ]
    return [heading, *lines]


def _fitting(
    columns: Sequence[UsageColumn], widths: Mapping[str, int], cells: int
) -> list[UsageColumn]:
    """Return the columns for which there is room, if the name is cut as far as it may be."""
    needed = {**widths, "name": min(widths["name"], _LEAST_NAME)}
    rest_of_name = min(widths["name"], _WHOLE_NAME) - needed["name"]
    left = cells + len(_GAP)
    kept = set()
    for column in sorted(columns, key=lambda each: each.rank):
        taken = needed[column.sort] + len(_GAP)
        reserved = rest_of_name if column.rank > _RANK_OF_NAME else 0
        if not column.rank or taken + reserved <= left:
            kept.add(column.sort)
            left -= taken
    return [column for column in columns if column.sort in kept]


def _width(column: UsageColumn, drawn: Sequence[Sequence[Span]], look: TableLook) -> int:
    if column.cells:
        return column.cells
    longest = max((sum(width(span.text) for span in cell) for cell in drawn), default=0)
    most = max(longest, len(_heading_text(column, look)))
    return most if column.sort == "name" else min(most, _MOST_TEXT)


def _heading_text(column: UsageColumn, look: TableLook) -> str:
    if column.sort != look.state.sort.column:
        return column.heading
    down, up = ("▼", "▲") if look.draw.has_dots else ("v", "^")
    return column.heading + (down if look.state.sort.descending else up)


def _heading(column: UsageColumn, cells: int, look: TableLook) -> Sequence[Span]:
    role = TextRole.SORTED if column.sort == look.state.sort.column else TextRole.HEADING
    return [Span(fitted(_heading_text(column, look), cells, right=column.right), role)]


def _padded(
    cell: Sequence[Span], cells: int, column: UsageColumn, look: TableLook
) -> Sequence[Span]:
    if len(cell) == 1:
        text, role = cell[0]
        return [Span(fitted(text, cells, look.ellipsis, right=column.right), role)]
    taken = sum(width(span.text) for span in cell)
    return [*clipped(cell, cells), Span(" " * max(0, cells - taken))]


def _joined(cells: Sequence[Sequence[Span]], width_: int) -> ScreenLine:
    spaced = (spans if index == 0 else (Span(_GAP), *spans) for index, spans in enumerate(cells))
    return ScreenLine(clipped(chain.from_iterable(spaced), width_))


def _columns(rows: Sequence[UsageRow], look: TableLook) -> list[UsageColumn]:
    level, state = look.state.place.level, look.state
    trend = look.trend[:3].upper()
    of = "OF NODE" if level is Level.NODES else "OF LIMIT"
    found = [
        UsageColumn("namespace", "NAMESPACE", _text("namespace"), 4),
        UsageColumn("name", level[:-1].upper(), _text("name"), 0),
        UsageColumn("status", "STATUS", _status, 2),
        UsageColumn("pods", "PODS", _pods, 5, 5, True),
        UsageColumn("restarts", "RESTARTS", _restarts, 8, 9, True),
        UsageColumn("cpu", "CPU", lambda row, look: [Span(cores(row.cpu.used))], 0, 6, True),
        UsageColumn("cpu%", of, lambda row, look: _bar(row.cpu, look), 1, _BAR + _SHARE + 1),
        UsageColumn("memory", "MEM", lambda row, look: [Span(size(row.memory.used))], 0, 7, True),
        UsageColumn("memory%", of, lambda row, look: _bar(row.memory, look), 1, _BAR + _SHARE + 1),
        UsageColumn("minute", f"{trend} 1M", _minute, 3, _TREND),
        UsageColumn("hour", f"{trend} 1H", _hour, 6, _TREND),
        UsageColumn("node", "NODE", _text("node"), 7),
        UsageColumn("devices", "DEVICES", _text("devices"), 5),
    ]
    hidden = {
        "namespace": level is Level.NODES or bool(state.namespace) or bool(state.place.pod),
        "pods": level is not Level.NODES,
        "restarts": level is Level.NODES,
        "node": level is not Level.PODS or bool(state.place.node),
        "devices": not any(row.devices for row in rows),
    }
    return [each for each in found if not hidden.get(each.sort)]


def _text(field: str) -> Cell:
    def cell(row: UsageRow, look: TableLook) -> Sequence[Span]:
        text = clean(str(getattr(row, field)), ascii_only=look.ascii_only)
        return [Span(text or "-", TextRole.PLAIN if text else TextRole.DIM)]

    return cell


def _status(row: UsageRow, look: TableLook) -> Sequence[Span]:
    if not row.status:
        return [Span("-", TextRole.DIM)]
    role = (
        TextRole.GOOD
        if row.is_well
        else TextRole.BAD
        if row.status in _FAILURES
        else TextRole.WARNING
    )
    return [Span(clean(row.status, ascii_only=look.ascii_only), role)]


_FAILURES: Final = frozenset(
    (
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "Error",
        "Evicted",
        "Failed",
        "ImagePullBackOff",
        "InvalidImageName",
        "NotReady",
        "OOMKilled",
        "RunContainerError",
        "StartError",
        "Unknown",
    )
)
"""Words for a state that does not pass by itself."""


def _pods(row: UsageRow, look: TableLook) -> Sequence[Span]:
    return [Span("-", TextRole.DIM) if row.pods is None else Span(str(row.pods))]


def _restarts(row: UsageRow, look: TableLook) -> Sequence[Span]:
    return [Span(str(row.restarts), TextRole.WARNING if row.restarts else TextRole.PLAIN)]


def _bar(amount: UsageAmount, look: TableLook) -> Sequence[Span]:
    """A bar up to the limit, with a mark at the request; the number says how much of the limit it
    is, or (`r`) of the request."""
    share = amount.share
    if share is None or amount.used is None:
        return [Span("-", TextRole.DIM)]
    drawn = bar(amount.used, amount.request, amount.limit, _BAR, draw=look.draw)
    text = f"{min(share, 99.99):.0%}" + ("" if amount.limit else "r")
    return [Span(drawn, share_role(amount)), Span(" " + text.rjust(_SHARE))]


def share_role(amount: UsageAmount) -> TextRole:
    """Return how alarming an amount is: near its limit, or above its request if it has no limit."""
    share = amount.share or 0.0
    if not amount.limit:
        return TextRole.WARNING if share > 1 else TextRole.GOOD
    return (
        TextRole.BAD
        if share >= BAD_SHARE
        else TextRole.WARNING
        if share >= WARNING_SHARE
        else TextRole.GOOD
    )


def _minute(row: UsageRow, look: TableLook) -> Sequence[Span]:
    course = look.courses.get(row.key)
    return [Span(_trend(course.minute(look.trend, look.end) if course else (), look))]


def _hour(row: UsageRow, look: TableLook) -> Sequence[Span]:
    course = look.courses.get(row.key)
    return [Span(_trend(course.hour(look.trend, look.end) if course else (), look))]


def _trend(points: Sequence[float | None], look: TableLook) -> str:
    return sparkline(points, _TREND, draw=look.draw)


def cores(used: float | None) -> str:
    """Return cpu in cores, small amounts in thousandths."""
    if used is None:
        return "-"
    if 0 < used < 0.0995:
        return f"{max(1, round(used * 1000))}m"
    return f"{used:.{2 if used < 9.995 else 1 if used < 99.95 else 0}f}"


def size(used: float | None) -> str:
    """Return memory in bytes."""
    return "-" if used is None else scaled(used, "B")
