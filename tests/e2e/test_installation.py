"""The wheel and the sdist hold all of kedge, and the wheel works outside of a checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kedge.cli.completion.scripts import FILES

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[2]
BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "src", "docs/reference")
NOT_PACKED = ("__pycache__", "*.pyc", "*.egg-info")
BUILD = """
import sys
from setuptools import build_meta
results = sys.argv[1]  # A build changes the arguments.
build_meta.build_sdist(results)
build_meta.build_wheel(results)
"""


def run(command: Sequence[object], cwd: Path) -> str:
    words = [str(each) for each in command]
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a wheel and an sdist of this checkout."""
    copy, results = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("built")
    for name in BUILT_FROM:
        source, target = ROOT / name, copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns(*NOT_PACKED))
        else:
            shutil.copyfile(source, target)
    run([sys.executable, "-W", "ignore", "-c", BUILD, results], cwd=copy)
    return results


def product_files() -> set[str]:
    source = ROOT / "src"
    found = (path for path in source.rglob("*") if path.is_file())
    names = {str(path.relative_to(source)) for path in found if path.suffix != ".pyc"}
    return {each for each in names if ".egg-info/" not in each}


def test_the_wheel_has_every_file_of_the_product_the_man_page_and_completion(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert product_files() <= names
    for path in ("share/man/man1/kedge.1", *FILES.values()):
        assert any(each.endswith(f".data/data/{path}") for each in names), path


def test_the_sdist_has_what_a_wheel_is_built_from(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{each}" for each in product_files()} <= names
    assert {"pyproject.toml", "README.md", "LICENSE", "docs/reference/kedge.1"} <= names


def test_an_installed_wheel_works_outside_of_a_checkout(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    # The dependencies are those of the tests: this is about the wheel.
    venv.create(tmp_path / "venv", with_pip=False)
    folder = next((tmp_path / "venv" / "lib").iterdir()) / "site-packages"
    (folder / "dependencies.pth").write_text(next(p for p in sys.path if p.endswith("-packages")))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python"]
    python = tmp_path / "venv" / "bin" / "python"
    options = ("install", "--quiet", "--no-deps", "--no-index", "--ignore-installed")
    run([*pip, python, *options, wheel], cwd=tmp_path)
    where = run([python, "-c", "import kedge; print(kedge.__file__)"], cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(folder)
    program = tmp_path / "venv" / "bin" / "kedge"
    assert "1.36." in run([program, "version"], cwd=tmp_path)
    assert (tmp_path / "venv" / FILES["bash"]).read_text().startswith("# Completion of kedge")
    up = [program, "run", "--nodes", "0", "--", program, "get", "namespaces"]
    assert "kube-system" in run(up, cwd=tmp_path)
