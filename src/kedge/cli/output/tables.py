"""Tables as the server sends them, printed as kubectl prints them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kedge.cli.output import tabstops

ACCEPT: Final = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
_BREAK: Final = re.compile(r"[\f\n\r]")
_CONTROLS: Final = {*range(0x20), *range(0x7F, 0xA0)} - {ord("\t"), ord("\n")}
_COMMANDS: Final = {
    **{code: f"\\x{code:02x}" for code in _CONTROLS},
    0x0D: "\\r",
    0x1B: "^[",
}


class TableOptions(NamedTuple):
    """The optional parts of a table."""

    wide: bool = False
    """Also the columns that are only for `-o wide`."""
    namespaces: bool = False
    labels: bool = False
    prefix: str = ""
    """A kind and a slash to put before names, where several kinds are shown."""


def heading(columns: Sequence[Mapping[str, Any]], look: TableOptions) -> list[str]:
    shown = [str(column["name"]).upper() for column in _shown(columns, look)]
    return ["NAMESPACE"] * look.namespaces + shown + ["LABELS"] * look.labels


def rows(
    table: Mapping[str, Any], columns: Sequence[Any], look: TableOptions
) -> Iterator[list[str]]:
    """The cells of every row, as text."""
    for row in table.get("rows") or ():
        metadata = (row.get("object") or {}).get("metadata") or {}
        yield _cells(row, columns, metadata, look)


def _cells(
    row: Mapping[str, Any], columns: Sequence[Any], metadata: Mapping[str, Any], look: TableOptions
) -> list[str]:
    pairs = zip(columns, row["cells"], strict=False)
    cells = [
        (look.prefix if column.get("format") == "name" else "") + text(cell)
        for column, cell in pairs
        if _is_shown(column, look)
    ]
    before = [str(metadata.get("namespace", ""))] if look.namespaces else []
    after = [labels(metadata.get("labels") or {})] if look.labels else []
    return before + cells + after


def _shown(columns: Iterable[Any], look: TableOptions) -> Iterator[Any]:
    return (column for column in columns if _is_shown(column, look))


def _is_shown(column: Mapping[str, Any], look: TableOptions) -> bool:
    return look.wide or not column.get("priority")


def text(cell: object) -> str:
    """A cell on one line, and unable to play tricks on the terminal."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    whole = str(cell)
    first = _BREAK.split(whole, maxsplit=1)[0]
    return harmless(first) + ("..." if first != whole else "")


def harmless(value: str) -> str:
    """Return the text without terminal control characters (CVE-2021-25743): names, events and
    messages may come from other users. The format is kubectl's, which lets rarer characters
    through."""
    return value.translate(_COMMANDS)


def labels(values: Mapping[str, str]) -> str:
    return ",".join(f"{key}={values[key]}" for key in sorted(values)) or "<none>"


class ColumnPrinter:
    """Prints rows that come in portions: no column is narrower than it has been."""

    def __init__(self) -> None:
        self._widths: list[int] = []

    def lines(self, portion: Sequence[Sequence[str]]) -> list[str]:
        if not portion:
            return []
        layout = tabstops.TABLE
        widths = [tabstops.width_of(cells, layout) for cells in zip(*portion, strict=True)][:-1]
        known = self._widths + [0] * (len(widths) - len(self._widths))
        self._widths = [max(pair) for pair in zip(widths, known, strict=True)]
        return [tabstops.spaced(row, self._widths, layout) for row in portion]


def made_up(items: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """A table of objects that the server would not make one of: their names and birthdays."""
    columns = [{"name": "Name", "format": "name"}, {"name": "Created At"}]
    return {
        "columnDefinitions": columns,
        "rows": [
            {
                "cells": [item["metadata"]["name"], item["metadata"].get("creationTimestamp")],
                "object": item,
            }
            for item in items
        ],
    }
