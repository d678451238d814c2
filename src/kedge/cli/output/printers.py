"""How commands show values: tables as kubectl prints them, JSON and YAML."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from kedge.cli.output.tables import harmless


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell, three blanks apart, as kubectl does it."""
    rows = [[harmless(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """One fact a line, aligned, as `kubectl describe` does it."""
    rows = [(f"{name}:", value) for name, value in pairs]
    width = max(len(name) for name, _ in rows) + 2
    return "\n".join(f"{name.ljust(width)}{value}" for name, value in rows)


def document(value: Any, output: str) -> str:
    """The value as JSON or YAML."""
    plain = msgspec.to_builtins(value)
    if output == "json":
        return msgspec.json.format(msgspec.json.encode(plain), indent=4).decode()
    from kedge.machinery import yaml_text

    return yaml_text.write(plain, sort=False).rstrip("\n")


def size(count: int) -> str:
    """Bytes in the largest unit that leaves at least one."""
    for unit, step in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= step:
            return f"{count / step:.1f} {unit}"
    return f"{count} B"
