"""A run fails if too many of its tests were skipped or tried again."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"

SKIPPED = """
import pytest

@pytest.mark.parametrize("number", range(3))
def test_skipped(number):
    pytest.skip("this machine lacks something")
"""
LATE = """
from pathlib import Path

def test_late(tmp_path):
    seen = Path(__file__).with_name("seen")
    seen.write_text(seen.read_text() + "." if seen.exists() else ".")
    assert len(seen.read_text()) % 2 == 0
"""


def run(directory: Path, *flags: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "pytest_rerunfailures", *flags]
    # Other plugins take longer to load than the tests to run.
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [*command, str(directory)],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    shutil.copy(CONFTEST, tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]")
    return tmp_path


def test_skipped_tests_are_counted_and_capped(suite: Path) -> None:
    (suite / "test_it.py").write_text(SKIPPED)
    code, said = run(suite, "--most-skipped=3")
    assert code == 0
    assert "skipped tests: 3, second tries: 0" in said
    code, said = run(suite, "--most-skipped=2")
    assert code == 1
    assert "3 tests were skipped, but at most 2 may be" in said


def test_a_test_that_is_late_in_three_runs_fails_the_third(suite: Path) -> None:
    (suite / "test_it.py").write_text(LATE)
    for code in (0, 0, 1):
        found, said = run(suite, "--reruns=1")
        assert found == code, said
        assert "skipped tests: 0, second tries: 1" in said
        assert "first try of test_it.py::test_late" in said
    assert "test_it.py::test_late needed a second try in 3 runs" in said
