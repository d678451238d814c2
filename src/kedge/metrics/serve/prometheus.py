"""The windows as Prometheus text: nodes, pods and containers, in gauges of cores and bytes."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kedge.metrics.collection import Entry
from kedge.metrics.frame import RESOURCES, STATISTICS, WINDOWS
from kedge.metrics.reports import Latest

_PIECE: Final = 256 << 10
_UNITS: Final = ("cpu_usage_cores", "memory_usage_bytes")
_COLUMNS: Final = tuple(
    (f'window="{window}",statistic="{statistic}"', resource)
    for window in WINDOWS
    for statistic in STATISTICS
    for resource in range(len(RESOURCES))
)


def pages(latest: Latest) -> Iterator[bytes]:
    """The whole text, in pieces."""
    piece: list[str] = []
    size = 0
    for text in _families(latest):
        piece.append(text)
        size += len(text)
        if size >= _PIECE:
            yield "".join(piece).encode()
            piece, size = [], 0
    yield "".join(piece).encode()


def nodes(latest: Latest) -> str:
    """Only what whole machines use."""
    return "".join(_family("kedge_node", "whole machines", _machines(latest.nodes.all())))


def _families(latest: Latest) -> Iterator[str]:
    nodes, pods = list(latest.nodes.all()), list(latest.pods.all())
    yield from _family("kedge_node", "whole machines", _machines(nodes))
    yield from _family("kedge_system_container", "daemons of nodes", _systems(nodes))
    yield from _family("kedge_pod", "whole pods", _pods(pods))
    yield from _family("kedge_container", "containers", _containers(pods))


Row = tuple[str, Sequence[float]]


def _family(prefix: str, what: str, rows: Iterable[Row]) -> Iterator[str]:
    kept = list(rows)
    for number, unit in enumerate(_UNITS):
        name = f"{prefix}_{unit}"
        yield f"# HELP {name} What {what} used, over rolling windows.\n# TYPE {name} gauge\n"
        for labels, row in kept:
            lines = [
                f"{name}{{{labels},{column}}} {value:.9g}\n"
                for (column, resource), value in zip(_COLUMNS, row, strict=True)
                if resource == number and value >= 0
            ]
            yield "".join(lines)


def _machines(entries: Iterable[Entry]) -> Iterator[Row]:
    for entry in entries:
        yield f'node="{entry.name}"', entry.frame.row(0)


def _systems(entries: Iterable[Entry]) -> Iterator[Row]:
    for entry in entries:
        for each in entry.frame.systems:
            yield (
                f'node="{entry.name}",container="{_escaped(each.name)}"',
                entry.frame.row(each.row),
            )


def _pods(entries: Iterable[Entry]) -> Iterator[Row]:
    for entry in entries:
        yield _place(entry), entry.frame.row(entry.row)


def _containers(entries: Iterable[Entry]) -> Iterator[Row]:
    for entry in entries:
        for each in entry.containers or ():
            labels = f'{_place(entry)},container="{_escaped(each.name)}"'
            yield labels, entry.frame.row(each.row)


def _place(entry: Entry) -> str:
    return f'node="{entry.node}",namespace="{entry.namespace}",pod="{entry.name}"'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
