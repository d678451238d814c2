"""Draw figures over a common axis as SVG: one panel a figure, each with its own scale from zero."""

from collections.abc import Sequence
from math import floor, log10
from typing import NamedTuple

WIDTH, HEIGHT = 300, 170
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 30, 26
COLUMNS = 3
LINE, TEXT, GRID = "#2563eb", "#6b7280", "#9ca3af"
"""Colours that can be read on white and on black."""


class Panel(NamedTuple):
    """One figure at several sizes."""

    title: str
    points: Sequence[tuple[float, float]]


def draw(axis: str, panels: Sequence[Panel]) -> str:
    """Return an SVG document; `axis` names the common axis."""
    rows = -(-len(panels) // COLUMNS)
    width, height = COLUMNS * WIDTH, rows * HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">'
    ]
    for number, panel in enumerate(panels):
        row, column = divmod(number, COLUMNS)
        parts.append(f'<g transform="translate({column * WIDTH},{row * HEIGHT})">')
        parts += panel_lines(axis, panel)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def panel_lines(axis: str, panel: Panel) -> list[str]:
    """Return the elements of one panel."""
    most_x = max(x for x, _ in panel.points)
    most_y = round_above(max(y for _, y in panel.points))
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    places = [
        (LEFT + x / most_x * (right - LEFT), bottom - y / most_y * (bottom - TOP))
        for x, y in panel.points
    ]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return [
        text(LEFT, TOP - 14, panel.title, weight="bold"),
        *(grid_line(share, most_y, right, bottom) for share in (0.0, 0.5, 1.0)),
        f'<polyline points="{path}" fill="none" stroke="{LINE}" stroke-width="2"/>',
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{LINE}"/>' for x, y in places),
        text(LEFT, HEIGHT - 8, "0"),
        text(right, HEIGHT - 8, f"{most_x:,.0f} {axis}", anchor="end"),
    ]


def grid_line(share: float, most: float, right: float, bottom: float) -> str:
    y = bottom - share * (bottom - TOP)
    line = f'<line x1="{LEFT}" x2="{right}" y1="{y}" y2="{y}" stroke="{GRID}" stroke-width="0.5"/>'
    return line + text(LEFT - 6, y + 4, number(share * most), anchor="end")


def round_above(value: float) -> float:
    """Return a round number that is at least so much; half of it is round too."""
    if value <= 0:
        return 1.0
    power: float = 10 ** floor(log10(value))
    return next(each * power for each in (1, 2, 4, 6, 8, 10) if each * power >= value)


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == 0 else f"{value:.3g}"


def text(x: float, y: float, content: str, *, anchor: str = "start", weight: str = "normal") -> str:
    style = f'text-anchor="{anchor}" font-weight="{weight}" fill="{TEXT}"'
    return f'<text x="{x}" y="{y:.1f}" {style}>{content}</text>'
