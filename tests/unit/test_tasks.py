"""Tasks outside of a TaskGroup: create_task of an event loop, and asyncio.ensure_future.

Ruff bans asyncio.create_task, but does not know what a loop is. It does not ban ensure_future,
because it would do so in tests, too, where the test function owns the task.
"""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

import kedge

SOURCES = Path(kedge.__file__).parent
MOST = 15
"""Files with such tasks; the number may only shrink."""
COMMENT_LINES = 4


def loop_tasks(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that start a task without a TaskGroup."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _starts_loop_task(node.func):
            yield node.lineno


def _starts_loop_task(function: ast.expr) -> bool:
    owner, _, name = ast.unparse(function).rpartition(".")
    return name == "ensure_future" or (name == "create_task" and "loop" in owner.lower())


@functools.cache
def places() -> dict[Path, list[int]]:
    sources = {path: path.read_text() for path in SOURCES.rglob("*.py")}
    # To parse every file takes seconds; few of them have one of the names.
    found = {
        path: sorted(loop_tasks(ast.parse(source)))
        for path, source in sources.items()
        if "create_task" in source or "ensure_future" in source
    }
    return {path: lines for path, lines in found.items() if lines}


def test_every_task_of_a_loop_names_its_owner() -> None:
    for path, lines in places().items():
        text = path.read_text().splitlines()
        above = "\n".join(text[max(0, lines[0] - 1 - COMMENT_LINES) : lines[0] - 1])
        assert "owns" in above, f"{path}:{lines[0]}: use asyncio.TaskGroup, or say who owns it"


def test_there_are_no_more_of_them() -> None:
    assert len(places()) <= MOST, "use asyncio.TaskGroup"


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("asyncio.get_running_loop().create_task(f())", [1]),
        ("self._loop.create_task(f())", [1]),
        ("asyncio.ensure_future(f())", [1]),
        ("ensure_future(f())", [1]),
        ("group.create_task(f())", []),
    ],
)
def test_tasks_of_loops_are_told_from_those_of_groups(source: str, lines: list[int]) -> None:
    assert list(loop_tasks(ast.parse(source))) == lines
