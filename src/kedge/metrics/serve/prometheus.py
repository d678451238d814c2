"""Windows of nodes, pods and containers as Prometheus text: gauges of cores and bytes."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kedge.metrics.frame import index
from kedge.metrics.reports import UsageReports
from kedge.metrics.usage_object import UsageObject
from kedge.metrics.windows import CORE, DETAILS, RESOURCES, STATISTICS, WINDOWS, Unit

_PIECE: Final = 256 << 10
_SUFFIXES: Final = {
    Unit.BYTES: "_bytes",
    Unit.COUNT: "",
    Unit.BYTES_PER_SECOND: "_bytes_per_second",
    Unit.PER_SECOND: "_per_second",
    Unit.SHARE: "_ratio",
}
_UNITS: Final = (
    "cpu_usage_cores",
    "memory_usage_bytes",
    *(each.name.replace("-", "_") + _SUFFIXES[each.unit] for each in DETAILS),
)
_COLUMNS: Final = tuple(
    tuple(
        (f'window="{window}",statistic="{statistic}"', index(window, statistic, resource))
        for window in WINDOWS
        for statistic in STATISTICS
    )
    for resource in RESOURCES
)
"""For each resource the labels and the position of its numbers in a row."""


def pages(reports: UsageReports) -> Iterator[bytes]:
    """The whole text, in pieces."""
    piece: list[str] = []
    size = 0
    for text in _families(reports):
        piece.append(text)
        size += len(text)
        if size >= _PIECE:
            yield "".join(piece).encode()
            piece, size = [], 0
    yield "".join(piece).encode()


def nodes(reports: UsageReports) -> str:
    """Only the usage of whole machines."""
    return "".join(_family("kedge_node", "whole machines", _machines(reports.nodes.all())))


def _families(reports: UsageReports) -> Iterator[str]:
    nodes, pods = list(reports.nodes.all()), list(reports.pods.all())
    yield from _family("kedge_node", "whole machines", _machines(nodes))
    yield from _family("kedge_system_container", "daemons of nodes", _systems(nodes))
    yield from _family("kedge_pod", "whole pods", _pods(pods))
    yield from _family("kedge_container", "containers", _containers(pods))


Row = tuple[str, Sequence[float]]


def _family(prefix: str, what: str, rows: Iterable[Row]) -> Iterator[str]:
    kept = list(rows)
    for number, unit in enumerate(_UNITS):
        name = f"{prefix}_{unit}"
        columns = _COLUMNS[number]
        if number >= len(CORE) and not any(row[columns[0][1]] >= 0 for _, row in kept):
            # A detail that no node measures.
            continue
        yield f"# HELP {name} What {what} used, over rolling windows.\n# TYPE {name} gauge\n"
        for labels, row in kept:
            lines = [
                f"{name}{{{labels},{column}}} {row[at]:.9g}\n"
                for column, at in columns
                if row[at] >= 0
            ]
            yield "".join(lines)


def _machines(entries: Iterable[UsageObject]) -> Iterator[Row]:
    for entry in entries:
        yield f'node="{entry.name}"', entry.frame.row(0)


def _systems(entries: Iterable[UsageObject]) -> Iterator[Row]:
    for entry in entries:
        for each in entry.frame.systems:
            yield (
                f'node="{entry.name}",container="{_escaped(each.name)}"',
                entry.frame.row(each.row),
            )


def _pods(entries: Iterable[UsageObject]) -> Iterator[Row]:
    for entry in entries:
        yield _place(entry), entry.frame.row(entry.row)


def _containers(entries: Iterable[UsageObject]) -> Iterator[Row]:
    for entry in entries:
        for each in entry.containers or ():
            labels = f'{_place(entry)},container="{_escaped(each.name)}"'
            yield labels, entry.frame.row(each.row)


def _place(entry: UsageObject) -> str:
    return f'node="{entry.node}",namespace="{entry.namespace}",pod="{entry.name}"'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
