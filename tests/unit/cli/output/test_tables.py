"""Tables of the server."""

from typing import Any

from kedge.cli.output.tables import (
    ColumnPrinter,
    TableOptions,
    harmless,
    heading,
    made_up,
    rows,
    text,
)

COLUMNS: list[dict[str, Any]] = [
    {"name": "Name", "format": "name"},
    {"name": "Ready", "priority": 0},
    {"name": "Created At", "priority": 1},
]
TABLE: dict[str, Any] = {
    "rows": [
        {
            "cells": ["web", True, "now"],
            "object": {"metadata": {"namespace": "n", "labels": {"b": "2", "a": "1"}}},
        },
        {"cells": ["db", None, "now"], "object": {"metadata": {"namespace": "m"}}},
    ]
}


def test_only_what_everybody_sees_is_shown_unless_more_is_asked_for() -> None:
    assert heading(COLUMNS, TableOptions()) == ["NAME", "READY"]
    assert list(rows(TABLE, COLUMNS, TableOptions())) == [["web", "true"], ["db", ""]]


def test_wide_tables_have_all_columns() -> None:
    assert heading(COLUMNS, TableOptions(wide=True)) == ["NAME", "READY", "CREATED AT"]


def test_namespaces_come_first_labels_last_and_kinds_before_names() -> None:
    look = TableOptions(namespaces=True, labels=True, prefix="pod/")
    assert heading(COLUMNS, look) == ["NAMESPACE", "NAME", "READY", "LABELS"]
    assert list(rows(TABLE, COLUMNS, look)) == [
        ["n", "pod/web", "true", "a=1,b=2"],
        ["m", "pod/db", "", "<none>"],
    ]


def test_a_cell_is_one_line_and_harmless() -> None:
    assert text("one\ntwo") == "one..."
    assert text("\x1b[2J") == "^[[2J"
    assert harmless("a\rb\tc\n\x9b2J\x07\x7fé") == "a\\rb\tc\n\\x9b2J\\x07\\x7fé"
    assert text(3) == "3"


def test_later_rows_are_no_narrower_than_earlier_ones() -> None:
    columns = ColumnPrinter()
    assert columns.lines([["NAME", "AGE"], ["long-name", "1s"]]) == [
        "NAME        AGE",
        "long-name   1s",
    ]
    assert columns.lines([["b", "2s"]]) == ["b           2s"]
    assert columns.lines([["very-long-name", "3s"]]) == ["very-long-name   3s"]
    assert columns.lines([]) == []


def test_objects_of_a_server_without_tables_are_shown_by_name() -> None:
    table = made_up([{"metadata": {"name": "x", "creationTimestamp": "then"}}])
    assert list(rows(table, table["columnDefinitions"], TableOptions())) == [["x", "then"]]
