"""Tasks outside of a TaskGroup. Ruff bans asyncio.create_task, but does not know what a loop is."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import kedge

SOURCES = Path(kedge.__file__).parent
MOST = 12
"""Files with such tasks today; the number may only shrink."""
COMMENT_LINES = 4


def loop_tasks(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that call create_task of an event loop."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "create_task"
            and "loop" in ast.unparse(node.func.value).lower()
        ):
            yield node.lineno


def places() -> dict[Path, list[int]]:
    found = {
        path: sorted(loop_tasks(ast.parse(path.read_text()))) for path in SOURCES.rglob("*.py")
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
        ("group.create_task(f())", []),
    ],
)
def test_tasks_of_loops_are_told_from_those_of_groups(source: str, lines: list[int]) -> None:
    assert list(loop_tasks(ast.parse(source))) == lines
