import subprocess
import sys
from pathlib import Path

import pytest

from kedge import dra
from kedge.machinery import cel

PACKAGE = """
from kedge.machinery.lazy_members import lazy_members
__getattr__ = lazy_members(__name__, {"part": "door.part", "NUMBER": "door.part"})
"""
SCRIPT = """
import sys, door
assert "door.part" not in sys.modules
assert door.NUMBER == 29 and "NUMBER" in vars(door)
assert door.part.NUMBER == 29
from door import NUMBER
try:
    door.missing
except AttributeError as error:
    print(error)
"""


def test_member_is_imported_when_it_is_first_used(tmp_path: Path) -> None:
    (tmp_path / "door").mkdir()
    (tmp_path / "door" / "__init__.py").write_text(PACKAGE)
    (tmp_path / "door" / "part.py").write_text("NUMBER = 29\n")
    run = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}){SCRIPT}"]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert done.stdout == "module 'door' has no attribute 'missing'\n"


@pytest.mark.parametrize("package", [cel, dra])
def test_every_published_member_exists(package: object) -> None:
    for name in package.__all__:  # type: ignore[attr-defined]
        assert getattr(package, name) is not None
