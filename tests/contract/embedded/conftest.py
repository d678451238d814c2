"""The embedded runtime as root, on real control groups."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contract.embedded.workbench import Bench, gone, groups_left, mounts, processes_below


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """Checks afterwards that nothing is left on the machine."""
    opened = Bench(tmp_path)
    await opened.open()
    yield opened
    for sandbox in await opened.runtime.sandboxes():
        await opened.runtime.remove_sandbox(sandbox.id)
    await opened.runtime.shutdown()
    await gone(opened.runtime.supervisor)
    assert [each for each in mounts() if each.startswith(str(tmp_path))] == []
    assert groups_left() == []
    assert processes_below(tmp_path) == []
    assert opened.images.held == {}
