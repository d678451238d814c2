"""A node agent's pods, on an API server in the same process; places where tests may mount."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kedge.node.volumes import mounts
from kedge.supervisor.kernel import libc
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
