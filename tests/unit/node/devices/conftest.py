"""A node's devices over real sockets, in a time that stands still."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kedge.testing.device_plugin import DeviceStage, device_stage


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[DeviceStage]:
    async with device_stage(tmp_path) as made:
        yield made
