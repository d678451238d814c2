"""Places where tests may mount, and nothing left mounted afterwards."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.node.volumes import mounts
from kedge.supervisor.kernel import libc


@pytest.fixture
def mountable(tmp_path: Path) -> Iterator[Path]:
    """A directory below which this process may mount."""
    probe = tmp_path / "probe"
    probe.mkdir()
    try:
        mounts.memory(probe)
    except PermissionError:
        pytest.skip("this user may not mount")
    libc.unmount(str(probe))
    probe.rmdir()
    yield tmp_path
    for place in mounts.below(tmp_path):
        libc.unmount(place)
