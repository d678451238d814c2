"""docs/architecture.md names files, functions, packages and layers that exist."""

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "kedge"
PAGE = (ROOT / "docs" / "architecture.md").read_text()

LIVES = 4
PLACE = re.compile(r"`([a-z_0-9/]+\.py)`\s+`([\w.]+)`")
"""A file and one of its functions, one behind the other."""


def section(heading: str) -> str:
    """Return the text below the heading that begins like this."""
    _, _, rest = PAGE.partition(f"\n## {heading}")
    return rest.partition("\n## ")[0]


def steps(life: str) -> list[str]:
    """Return the items of the numbered lists of a life."""
    return re.findall(r"^\d+\. (.*?)(?=^\d+\. |^\S|\Z)", life, re.DOTALL | re.MULTILINE)


@cache
def definitions(path: Path) -> set[str]:
    """Return the functions and classes of a file, and `Class.method` for its methods."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = (ast.FunctionDef, ast.AsyncFunctionDef)
            found |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, methods)}
    return found


LIFE_TEXTS = [section(f"Life {number}: ") for number in range(1, LIVES + 1)]
STEPS = [step for life in LIFE_TEXTS for step in steps(life)]


def test_each_life_has_a_list_of_steps() -> None:
    assert all(len(steps(life)) >= 10 for life in LIFE_TEXTS)


def test_the_steps_of_each_list_are_counted() -> None:
    numbers = [int(each) for life in LIFE_TEXTS for each in re.findall(r"^(\d+)\. ", life, re.M)]
    for before, after in zip([0, *numbers], numbers, strict=False):
        assert after in (before + 1, 1), f"step {after} follows step {before}"


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.partition("\n")[0][:60])
def test_a_step_names_files_and_functions_that_exist(step: str) -> None:
    places = PLACE.findall(step)
    assert step.startswith("`"), "a step begins with its file and function"
    assert places
    for path, name in places:
        assert (SOURCE / path).is_file(), path
        assert name in definitions(SOURCE / path), f"{path} does not define {name}"


def folders() -> dict[str, list[str]]:
    """Return the names in the table of folders, by folder."""
    rows = re.findall(r"^\| `(\w+)/` \| (.*) \|$", section("Where to find what"), re.MULTILINE)
    return {folder: re.findall(r"`([a-z_0-9/]+)`", content) for folder, content in rows}


def test_the_table_of_folders_has_every_package() -> None:
    assert sorted(folders()) == sorted(each.parent.name for each in SOURCE.glob("*/__init__.py"))


@pytest.mark.parametrize("folder", folders())
def test_every_module_and_package_in_the_table_of_folders_exists(folder: str) -> None:
    for name in folders()[folder]:
        path = SOURCE / folder / name
        assert path.is_dir() if name.endswith("/") else path.with_suffix(".py").is_file(), path


def test_the_picture_of_layers_is_what_import_linter_checks() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (layers,) = [
        each["layers"] for each in config["tool"]["importlinter"]["contracts"] if "layers" in each
    ]
    wanted = [sorted(name.removeprefix("kedge.") for name in row.split(" | ")) for row in layers]
    picture = section("Layers").partition("```\n")[2].partition("```")[0]
    rows = [sorted(re.findall(r"\w+", line)) for line in picture.splitlines()]
    assert [row for row in rows if row] == wanted
