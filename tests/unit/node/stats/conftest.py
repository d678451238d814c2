"""What the tests of measuring share."""

from pathlib import Path

import pytest

from kedge.testing.measured import MeasuredMachine


@pytest.fixture
def machine(tmp_path: Path) -> MeasuredMachine:
    return MeasuredMachine(tmp_path / "cgroup", "v1")
