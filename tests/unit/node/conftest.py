"""A node agent's pods, on an API server in the same process."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kedge.testing.local_server import LocalServer
from kedge.testing.node import LocalNode


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[LocalNode]:
    """An agent that has begun."""
    async with LocalServer.running() as server:
        made = LocalNode(server, tmp_path)
        await made.start()
        yield made
        await made.close()
