"""The page of `kedge simulate`: one HTML file with plots in SVG, and nothing from elsewhere."""

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Final

from kedge.scheduler.replay.replay import LoadFrame, ReplayResult
from kedge.scheduler.replay.trace import Trace

_WIDTH: Final = 900
_HEIGHT: Final = 180
_LEFT: Final = 50
_POINTS: Final = 600
"""Points of one line; longer series are thinned out to their maxima."""
_COLOURS: Final = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b")
_STYLE: Final = """\
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:960px;padding:0 1rem;color:#222}
table{border-collapse:collapse}
td,th{padding:.2rem .8rem;text-align:right;border-bottom:1px solid #ddd}
td:first-child,th:first-child{text-align:left}svg{background:#fafafa;border:1px solid #ddd}
svg text{font:11px system-ui,sans-serif;fill:#555}"""

Row = Sequence[str]


def page(trace: Trace, nodes: int, rows: Sequence[Row], results: Sequence[ReplayResult]) -> str:
    """The whole page; `rows` are those of the printed table."""
    hours = (trace.moments[-1] - trace.moments[0]) / 3600
    about = (
        f"{len(trace.pods)} pods, {nodes} nodes, {hours:.1f} hours, {len(trace.moments)} moments"
    )
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8><title>kedge simulate</title>",
        f"<style>{_STYLE}</style></head><body><h1>kedge simulate</h1><p>{escape(about)}</p>",
        _table(rows),
        "<h2>Spread of cpu</h2><p>Most loaded node minus least loaded, in percent of a node.</p>",
        _legend([each.policy for each in results]),
        _plot([_spread(each.frames) for each in results]),
    ]
    for result in results:
        parts.append(
            f"<h2>Placed by {escape(result.policy)}</h2><p>Cpu load of each node, in percent; above"
            " the line pods wanted more than there is.</p>"
        )
        parts.append(_plot([[100 * value for value in each] for each in _by_node(result, "cpu")]))
        parts.append("<p>Memory load of each node, in percent.</p>")
        parts.append(
            _plot([[100 * value for value in each] for each in _by_node(result, "memory")])
        )
    return "".join([*parts, "</body></html>\n"])


def _table(rows: Sequence[Row]) -> str:
    heading, *rest = rows
    cells = "".join(f"<th>{escape(each)}</th>" for each in heading)
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rest
    )
    return f"<table><tr>{cells}</tr>{lines}</table>"


def _legend(names: Sequence[str]) -> str:
    marks = (
        f'<span style="color:{_colour(number)}">&#9632;</span> {escape(name)}'
        for number, name in enumerate(names)
    )
    return f"<p>{' &nbsp; '.join(marks)}</p>"


def _spread(frames: Sequence[LoadFrame]) -> list[float]:
    return [100 * (max(each.cpu) - min(each.cpu)) for each in frames]


def _by_node(result: ReplayResult, resource: str) -> Iterator[Sequence[float]]:
    take: Callable[[LoadFrame], Sequence[float]] = (
        (lambda frame: frame.cpu) if resource == "cpu" else (lambda frame: frame.memory)
    )
    yield from zip(*(take(each) for each in result.frames), strict=True)


def _plot(lines: Sequence[Sequence[float]]) -> str:
    top = max([100.0, *(max(line) for line in lines)])
    marks = "".join(_mark(percent, top) for percent in _ticks(top))
    drawn = "".join(
        f'<polyline fill="none" stroke="{_colour(number)}" points="{_points(line, top)}"/>'
        for number, line in enumerate(lines)
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + 20}" width="100%" role="img">{marks}{drawn}</svg>'
    )


def _ticks(top: float) -> list[float]:
    return [0.0, 50.0, 100.0] if top <= 200 else [0.0, 100.0, round(top / 100) * 100.0]


def _mark(percent: float, top: float) -> str:
    at = _y(percent, top)
    return (
        f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{at}" y2="{at}" stroke="#ccc"/>'
        f'<text x="{_LEFT - 8}" y="{at}" text-anchor="end">{percent:.0f}%</text>'
    )


def _points(line: Sequence[float], top: float) -> str:
    thin = _thinned(line)
    step = (_WIDTH - _LEFT) / max(1, len(thin) - 1)
    return " ".join(f"{_LEFT + at * step:.1f},{_y(value, top)}" for at, value in enumerate(thin))


def _thinned(line: Sequence[float]) -> Sequence[float]:
    """No more points than can be seen; peaks are kept."""
    size = -(-len(line) // _POINTS)
    return [max(line[at : at + size]) for at in range(0, len(line), size)]


def _y(percent: float, top: float) -> str:
    return f"{10 + _HEIGHT * (1 - percent / top):.1f}"


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]
